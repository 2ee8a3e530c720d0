package look

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/pod"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/unit"
)

// Node is a machine whose GPUs weft serves.
type Node struct {
	Name     string     `json:"name"`
	Fault    string     `json:"fault"` // why it takes no Pods; "" where it does
	Models   []string   `json:"models"`
	GPUs     int        `json:"gpus"`
	Idle     int        `json:"idle"`
	Shared   int        `json:"shared"`
	Native   int        `json:"native"`
	Closed   int        `json:"closed"`
	Pods     int        `json:"pods"` // that have one of its GPUs, or a part of one
	Reserved unit.Bytes `json:"reserved_bytes"`
	Usable   unit.Bytes `json:"usable_bytes"`
}

// GPU is a GPU of a node.
type GPU struct {
	Name      string     `json:"name"` // "node-3/gpu1"
	Node      string     `json:"node"`
	UUID      string     `json:"uuid"`
	Model     string     `json:"model"`
	State     string     `json:"state"` // idle, shared, native, drained, gpuunhealthy
	Fault     string     `json:"fault"`
	Reserved  unit.Bytes `json:"reserved_bytes"`
	Usable    unit.Bytes `json:"usable_bytes"`
	Residents []string   `json:"residents"` // Pods
}

// Pod is a Pod that asks for GPUs.
type Pod struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Mode      Mode       `json:"mode"`
	State     State      `json:"state"`
	Class     string     `json:"class"` // "" of a native Pod
	Floor     *float64   `json:"floor_fraction"`
	GPUs      int        `json:"gpus"` // that it asks for
	On        []string   `json:"on"`
	Rate      *float64   `json:"rate_fraction"` // observed over the last window; null where its agent has told of none
	Predicted *float64   `json:"predicted_fraction"`
	Reserved  unit.Bytes `json:"reserved_bytes"` // of each GPU; 0 is unknown
	Peak      unit.Bytes `json:"peak_bytes"`
	Since     time.Time  `json:"since_at"`
	Reason    string     `json:"reason"` // in a few words: "MemoryOverflow node-3/gpu1"
	Below     bool       `json:"below_floor"`
}

// GPUs are all GPUs that weft serves, by node and index.
func (l *Look) GPUs() []GPU {
	list := []GPU{}
	for i, u := range l.q.Uses() {
		g := &l.q.GPUs[i]
		list = append(list, GPU{Name: g.String(), Node: g.Node, UUID: g.UUID, Model: g.Model, State: u.State, Fault: g.Fault, Reserved: u.Reserved,
			Usable: g.Memory, Residents: l.holders(i)})
	}
	return list
}

// Nodes are the nodes with GPUs that weft serves, by name.
func (l *Look) Nodes() []Node {
	list := []Node{}
	var pods map[string]bool
	for _, g := range l.GPUs() {
		if len(list) == 0 || list[len(list)-1].Name != g.Node {
			list = append(list, Node{Name: g.Node, Models: []string{}, Fault: l.faultOf(g.Node)})
			pods = map[string]bool{}
		}
		n := &list[len(list)-1]
		n.GPUs++
		n.Models = appendNew(n.Models, g.Model)
		n.Reserved, n.Usable = n.Reserved.Add(g.Reserved), n.Usable.Add(g.Usable)
		switch g.State {
		case "idle":
			n.Idle++
		case "shared":
			n.Shared++
		case "native":
			n.Native++
		default:
			n.Closed++
		}
		for _, name := range g.Residents {
			pods[name] = true
		}
		n.Pods = len(pods)
	}
	return list
}

// faultOf is why a node takes no Pods of weft.
func (l *Look) faultOf(node string) string {
	i := slices.IndexFunc(l.c.Nodes, func(n *corev1.Node) bool { return n.Name == node })
	if i < 0 {
		return "the node is gone"
	}
	for _, c := range l.c.Nodes[i].Status.Conditions {
		if string(c.Type) == kube.ConditionServing && c.Status == corev1.ConditionFalse {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	for g := range l.q.GPUs { // the queue has it with each GPU that is closed for its node's sake
		if l.q.GPUs[g].Node == node && l.q.State.GPUs[g].Closed == plan.Drained {
			return l.q.GPUs[g].Fault
		}
	}
	return ""
}

// Pods are the Pods of a namespace, "" for all, that ask for GPUs or have some, and have not ended: by namespace and name.
func (l *Look) Pods(namespace string) []Pod {
	list := []Pod{}
	for _, p := range l.sortedPods(namespace) {
		if state := l.stateOf(p); state != Ended && (modeOf(p) != None || len(l.places[p.UID]) > 0) {
			list = append(list, l.row(p, state))
		}
	}
	return list
}

func (l *Look) row(p *corev1.Pod, state State) Pod {
	r := Pod{Namespace: p.Namespace, Name: p.Name, Mode: modeOf(p), State: state, GPUs: pod.WholeGPUs(p), On: l.gpus(l.places[p.UID]), Since: since(p), Below: below(p)}
	if r.Mode == None {
		r.Mode = Native // by a claim of its own
	}
	if state == Waiting || state == Placed {
		r.Since = p.CreationTimestamp.Time
	}
	m, known := l.members[p.UID]
	if known && m.Request != nil {
		r.Class, r.Floor = m.Request.Class.String(), &m.Request.Floor
		r.GPUs = 0
		for _, w := range m.Request.Workers {
			r.GPUs += w.GPUs
		}
		r.Reserved, r.Peak = l.memoryOf(m)
		if mean, _, _, _, ok := l.q.Predict(m.job.ID); ok {
			r.Predicted = &mean
		}
		if rate, seen := l.rates[m.job.ID]; seen && state == Running {
			r.Rate = &rate
		}
	}
	r.Reason = l.reasonOf(p, state)
	return r
}

// memoryOf is what a Pod of weft has or is to have of each GPU; 0 where that is not known.
func (l *Look) memoryOf(m member) (reserved, peak unit.Bytes) {
	for _, s := range m.Shares {
		reserved, peak = max(reserved, s.Reserved), max(peak, s.Peak)
	}
	if j := l.jobs[m.job.ID]; j != nil && peak == 0 && j.Memory.Peak() > 1 {
		reserved, peak = j.Memory.Persistent, j.Memory.Peak()
	}
	return reserved, peak
}

// below says whether the Pod is known to be below its floor.
func below(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return string(c.Type) == kube.ConditionFloorHeld && c.Status == corev1.ConditionFalse
	})
}

// reasonOf is what there is to say of a Pod in a few words.
func (l *Look) reasonOf(p *corev1.Pod, state State) string {
	switch state {
	case Invalid:
		return string(queue.Invalid)
	case Placed:
		return "for the scheduler"
	case Running:
		if below(p) {
			return "below its floor"
		}
		return ""
	case Waiting:
	default:
		return ""
	}
	m, known := l.members[p.UID]
	if !known {
		return l.strange(p)
	}
	if _, ok := l.starts[m.job.ID]; ok {
		return "fits now"
	}
	w, ok := l.waits[m.job.ID]
	if !ok {
		return ""
	}
	switch {
	case m.job.Native:
		return string(plan.Native)
	case w.After != 0:
		return string(w.Reason.Code) + " after " + l.q.Name(w.After)
	case w.GPU >= 0:
		return string(w.Reason.Code) + " " + l.q.GPUs[w.GPU].String()
	}
	return string(w.Reason.Code)
}

// strange is why a Pod that waits is of no job.
func (l *Look) strange(p *corev1.Pod) string {
	switch s := p.Spec.SchedulerName; {
	case s != "" && s != corev1.DefaultSchedulerName:
		return "for scheduler " + s
	case len(p.Spec.SchedulingGates) > 0:
		return "gated by " + strings.Join(gatesOf(p), ", ")
	}
	return "for the scheduler"
}

func gatesOf(p *corev1.Pod) []string {
	var names []string
	for _, g := range p.Spec.SchedulingGates {
		names = append(names, g.Name)
	}
	return names
}

// Status is how a cluster is.
type Status struct {
	Degraded []string          `json:"degraded"` // what is wrong, for people
	Nodes    int               `json:"nodes"`    // with GPUs
	Serving  int               `json:"serving"`  // of them, that take Pods
	GPUs     int               `json:"gpus"`
	Idle     int               `json:"idle"`
	Shared   int               `json:"shared"`
	Native   int               `json:"native"`
	Closed   int               `json:"closed"`
	Sharing  int               `json:"pods_sharing"` // Pods that share GPUs
	Whole    int               `json:"pods_whole"`   // Pods that have GPUs whole
	Waiting  int               `json:"pods_waiting"`
	Below    int               `json:"pods_below_floor"`
	Wanted   int               `json:"gpus_wanted"` // more, by Pods that wait for room; 256 stands for more
	Reasons  map[plan.Code]int `json:"reasons"`     // of Pods that wait
}

// unplaced is how long a Pod may fit before something is wrong.
const unplaced = 30 * time.Second

// Status says how the cluster is.
func (l *Look) Status() Status {
	s := Status{Degraded: append([]string{}, l.c.Wrong...), Reasons: map[plan.Code]int{}}
	for _, n := range l.Nodes() {
		s.Nodes++
		if n.Fault == "" {
			s.Serving++
		} else {
			s.Degraded = append(s.Degraded, n.Name+": "+n.Fault)
		}
		s.GPUs, s.Idle, s.Shared, s.Native, s.Closed = s.GPUs+n.GPUs, s.Idle+n.Idle, s.Shared+n.Shared, s.Native+n.Native, s.Closed+n.Closed
	}
	s.unserved(l)
	for g := range l.q.GPUs {
		if l.q.State.GPUs[g].Closed == plan.GPUUnhealthy {
			s.Degraded = append(s.Degraded, l.q.GPUs[g].String()+": "+l.q.GPUs[g].Fault)
		}
	}
	s.pods(l)
	s.Wanted = l.q.Demand(&l.decision)
	return s
}

// unserved counts nodes that say of themselves that weft does not serve their GPUs.
func (s *Status) unserved(l *Look) {
	for _, n := range l.c.Nodes {
		for _, c := range n.Status.Conditions {
			has := slices.ContainsFunc(l.q.GPUs, func(g queue.GPU) bool { return g.Node == n.Name })
			if string(c.Type) == kube.ConditionServing && c.Status == corev1.ConditionFalse && !has {
				s.Nodes++
				s.Degraded = append(s.Degraded, n.Name+": "+cmp.Or(c.Message, c.Reason))
			}
		}
	}
}

// pods counts Pods and finds those that something is wrong with.
func (s *Status) pods(l *Look) {
	late := 0
	for _, p := range l.sortedPods("") {
		state := l.stateOf(p)
		switch m, known := l.members[p.UID]; {
		case state == Ended || modeOf(p) == None && len(l.places[p.UID]) == 0:
		case state == Invalid:
			s.Degraded = append(s.Degraded, nameOf(p)+": "+l.q.Faults[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}].Text)
		case state == Waiting:
			s.Waiting++
			s.Reasons[l.codeOf(p)]++
			if _, fits := l.starts[m.jobID()]; known && fits && !m.job.Native && l.c.Now.Sub(p.CreationTimestamp.Time) > unplaced {
				late++
			}
		case known && !m.job.Native:
			s.Sharing++
			if below(p) {
				s.Below++
				s.Degraded = append(s.Degraded, nameOf(p)+": below its floor")
			}
		case len(l.places[p.UID]) > 0:
			s.Whole++
		}
	}
	if late > 0 {
		s.Degraded = append(s.Degraded, several(late, "Pod fits", "Pods fit")+" and nobody places them: is the controller running?")
	}
}

// codeOf is why a Pod waits, as a code.
func (l *Look) codeOf(p *corev1.Pod) plan.Code {
	m, known := l.members[p.UID]
	w, waits := l.waits[m.jobID()]
	switch {
	case !known:
		return plan.Dependency
	case !waits:
		return plan.Planning
	case m.job.Native:
		return plan.Native
	}
	return w.Reason.Code
}
