// Package queue turns a cluster, as the Kubernetes API has it, into a question for internal/dispatch, and its answer back into
// claims and words. It is pure: everything comes in by Cluster, and the same objects give the same question in whatever order they
// are listed.
//
// What is placed is told by claims alone: a restart, or another controller, sees what this one saw.
package queue

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/pod"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/unit"
)

// Cluster is what a decision is made of. Objects are only read.
type Cluster struct {
	Now        time.Time
	Nodes      []*corev1.Node
	Slices     []*resourcev1.ResourceSlice
	Claims     []*resourcev1.ResourceClaim
	Pods       []*corev1.Pod
	Namespaces []*corev1.Namespace     // for who explains; decisions do not need them
	Policy     *v1alpha1.SharingPolicy // nil for the defaults
	Profiles   []*v1alpha1.WorkloadProfile

	// Memory may be nil. It makes the next question cheaper.
	Memory *Memory

	// Held are Pods that are not tried now, by their UID: the text says why.
	Held map[types.UID]string

	// Passed are native Pods that a GPU was free for and the scheduler did not place: they are kept no GPU.
	Passed map[types.UID]bool

	Seen Seen
}

// Seen is what was observed of what runs, and what follows from that.
type Seen struct {
	Rates   map[types.UID]float64 // of Pods: the mean since they were placed, as a share of their speed alone
	Resting map[types.UID]bool    // Pods that are not moved now
}

// GPU is one device of a node.
type GPU struct {
	Node   string
	Device string // its name in the slice
	UUID   string
	Model  string
	Index  int64
	Memory unit.Bytes

	Fault string // why it is closed, for people; "" for open
	Evict bool   // nobody may stay: it has a NoExecute taint
}

// String is the GPU as people read it: "node-3/gpu1".
func (g *GPU) String() string { return fmt.Sprintf("%s/gpu%d", g.Node, g.Index) }

// Member is a Pod of a job.
type Member struct {
	Pod     *corev1.Pod
	Request *pod.Request                // nil for a native Pod
	Claims  []*resourcev1.ResourceClaim // of Request.Workers, in their order; nil where there is none
	Shares  []claim.Share               // the same, read; only where all claims are there
}

// Job is what dispatch knows under one ID.
type Job struct {
	ID      box.ID
	Name    string // "ml/bert-0", of a gang "ml/bert-0 and 3 more"
	Members []*Member
	Native  bool          // it asks for whole GPUs, and the scheduler places it
	Key     string        // what it is alike with: a profile, or its owner; "" of native jobs
	Kind    estimate.Kind // by which its rates are predicted; empty for one that shares with nobody

	reserved   unit.Bytes // of each GPU, rounded; 0 for unknown
	peak       unit.Bytes
	cooperates bool
	alone      bool    // it shares with nobody
	waits      string  // what it waits for, for people, where that is not a GPU
	bad        string  // why it can never start as it is
	confined   string  // the node that it is bound to already; "" for none
	rejoins    *broken // the gang that it is missing from; nil for none
}

// Queue is the question with what it stands for.
type Queue struct {
	State  dispatch.State
	GPUs   []GPU // as State.GPUs
	Jobs   map[box.ID]*Job
	Lift   []*Member                      // still gated, and placed by their claims
	Undo   []*resourcev1.ResourceClaim    // claims that place nothing: the job is planned anew without them
	Evict  []Eviction                     // Pods that cannot stay or start where they are
	Faults map[types.NamespacedName]Fault // Pods that cannot be read

	cluster *Cluster
	book    *estimate.Book
	known   *Memory
	nodes   *nodes
	at      map[string]int       // GPU by UUID
	native  map[int][]claim.User // who holds a GPU whole, with its namespace before the name
	reside  map[int][]box.ID     // jobs on a GPU

	profiles map[types.NamespacedName]figures // by namespace and name, once one was asked for
	replicas map[string][]replica             // of Deployments, by namespace and name, once asked for
}

// Fault is why a Pod cannot be read.
type Fault struct {
	Pod  *corev1.Pod
	Text string
}

// Eviction is a Pod that is to go, and why.
type Eviction struct {
	Pod    *corev1.Pod
	Reason plan.Code
	Text   string
}

// Build makes the question. The book says what is known of kinds of jobs: what profiles tell is told to it.
func Build(c *Cluster, b *estimate.Book) *Queue {
	q := &Queue{cluster: c, book: b, Jobs: map[box.ID]*Job{}, Faults: map[types.NamespacedName]Fault{},
		at: map[string]int{}, native: map[int][]claim.User{}, reside: map[int][]box.ID{}}
	if q.known = c.Memory; q.known == nil {
		q.known = &Memory{}
	}
	q.known.begin(c.Policy)
	defer q.known.end()
	q.nodes = newNodes(c, q.known)
	q.takeGPUs()
	q.State.Now = c.Now
	q.State.Options = options(c.Policy)
	q.closeGPUs()
	q.number(q.jobs())
	q.State.Users = q.users()
	for _, x := range b.Bans() {
		q.State.Bans = append(q.State.Bans, dispatch.Ban{A: b.Config(x.A), B: b.Config(x.B), Until: x.Until})
	}
	q.State.Table = b.Safe()
	return q
}

// defaultEpsilon is the accepted probability of exceeding a GPU's memory where no policy says otherwise.
const defaultEpsilon = 0.05

func options(p *v1alpha1.SharingPolicy) dispatch.Options {
	o := dispatch.Options{Epsilon: defaultEpsilon, MaxResidents: defaultResidents}
	if p != nil {
		o.Epsilon = min(max(0, p.Spec.Epsilon.Float(defaultEpsilon)), 0.999)
		if p.Spec.Residents > 0 {
			o.MaxResidents = int(p.Spec.Residents)
		}
	}
	return o
}

const defaultResidents = 4

// spec is the policy in force; nil for none.
func (q *Queue) spec() *v1alpha1.SharingPolicySpec {
	if q.cluster.Policy == nil {
		return nil
	}
	return &q.cluster.Policy.Spec
}

// Held says whether a member is left alone for now, and why.
func (q *Queue) Held(m *Member) (string, bool) {
	text, ok := q.cluster.Held[m.Pod.UID]
	return text, ok
}

// Waits says whether a Pod is there and not bound to a node.
func (q *Queue) Waits(uid types.UID) bool {
	p := q.nodes.pods[uid]
	return p != nil && p.Spec.NodeName == "" && !Done(p)
}
