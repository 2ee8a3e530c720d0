package queue

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/pod"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/unit"
)

// Reasons of events on Pods.
const (
	Waiting   = "Waiting"   // Normal: it starts when something changes
	CannotFit = "CannotFit" // Warning: its user must change something
	Placed    = "Placed"    // Normal
	Refused   = "Refused"   // Warning: the API refused what its placement needs
	Evicted   = "Evicted"   // Normal: it goes, and its owner makes another one
)

// Word is what is said of a Pod. Two words of one Code are the same news, though their numbers differ.
type Word struct {
	Reason  string
	Code    plan.Code
	Text    string
	Warning bool
	Quiet   bool // it is a condition, and no Event
}

// never are the codes after which a job waits for its user.
var never = []plan.Code{plan.TooLarge, plan.FloorUnreachable, Invalid}

// Never says whether a job with a code waits for its user.
func Never(c plan.Code) bool { return slices.Contains(never, c) }

// News is what Wait says without its text, which costs more: whether it is news can be told by it.
func (q *Queue) News(w dispatch.Wait) Word {
	j, code := q.Jobs[w.Job], w.Reason.Code
	switch {
	case j.bad != "":
		return Word{Reason: CannotFit, Code: Invalid, Warning: true}
	case j.waits == "" && Never(code) && len(q.GPUs) > 0:
		return Word{Reason: CannotFit, Code: code, Warning: true}
	}
	return Word{Reason: Waiting, Code: code}
}

// Wait says why a job waits.
func (q *Queue) Wait(w dispatch.Wait) Word {
	j, word := q.Jobs[w.Job], q.News(w)
	switch {
	case j.bad != "":
		word.Text = fmt.Sprintf("%s: %s", w.Reason.Code, j.bad)
	case j.waits != "":
		word.Text = fmt.Sprintf("%s: %s", word.Code, j.waits)
	default:
		word.Text = fmt.Sprintf("%s: %s", word.Code, q.why(j, w))
		if !word.Warning {
			word.Text += q.ways(j, word.Code)
		}
	}
	return word
}

// why is the reason of a wait with its numbers.
func (q *Queue) why(j *Job, w dispatch.Wait) string {
	r := w.Reason
	switch r.Code {
	case plan.TooLarge:
		return q.tooLarge(j, r)
	case plan.Priority:
		return q.name(w.After) + " comes first, and would wait longer"
	case plan.Quota:
		if r.Limit == 0 {
			return j.Members[0].Pod.Namespace + " may share no GPUs: its quota is 0"
		}
		return fmt.Sprintf("%s would have %.0f GPUs, its quota is %.0f", j.Members[0].Pod.Namespace, r.Got, r.Limit)
	case plan.Gang:
		return fmt.Sprintf("it starts with %.0f GPUs at once, %.0f of %d take it", r.Got, r.Limit, len(q.GPUs)) + list(w.Refused) + q.nearest(j, w)
	case plan.Planning:
		return "it is looked at next"
	}
	return fmt.Sprintf("0 of %d GPUs", len(q.GPUs)) + list(w.Refused) + q.nearest(j, w)
}

func (q *Queue) tooLarge(j *Job, r plan.Reason) string {
	switch {
	case len(q.GPUs) == 0:
		return "no node has GPUs that weft serves"
	case r.Got >= float64(claim.Step):
		return fmt.Sprintf("asks %s, largest GPU %s; lower weft.dev/memory", Bytes(unit.Bytes(r.Got)), Bytes(unit.Bytes(r.Limit)))
	case j.peak > 0:
		return fmt.Sprintf("asks %.0f GPUs of %s, the cluster has %.0f for it; ask for fewer", r.Got, Bytes(j.peak), r.Limit)
	}
	return fmt.Sprintf("asks %.0f GPUs, the cluster has %.0f for it; ask for fewer", r.Got, r.Limit)
}

// list is how often each reason refused: " (14 FloorResident, 7 MemoryOverflow)".
func list(counts map[plan.Code]int) string {
	if len(counts) == 0 {
		return ""
	}
	codes := slices.SortedFunc(maps.Keys(counts), func(a, b plan.Code) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(string(a), string(b))
	})
	var parts []string
	for _, c := range codes {
		parts = append(parts, fmt.Sprintf("%d %s", counts[c], c))
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// nearest is the GPU that comes nearest to taking a job, and what it lacks.
func (q *Queue) nearest(j *Job, w dispatch.Wait) string {
	if w.Reason.Code == plan.NodeMismatch && j.confined == "" {
		w.GPU = q.closest(j)
	}
	if w.GPU < 0 || w.GPU >= len(q.GPUs) {
		return ""
	}
	text := "; nearest " + q.GPUs[w.GPU].String()
	if lacks := q.lacks(j, w); lacks != "" {
		text += " " + lacks
	}
	return text
}

// lacks is what keeps a job off one GPU.
func (q *Queue) lacks(j *Job, w dispatch.Wait) string {
	r := w.Reason
	switch r.Code {
	case plan.MemoryOverflow:
		return fmt.Sprintf("P(over) %.2f > %.2f", r.Got, r.Limit) + q.besides(w.GPU)
	case plan.MemoryReserved:
		return fmt.Sprintf("%s > %s", Bytes(unit.Bytes(r.Got)), Bytes(unit.Bytes(r.Limit))) + q.besides(w.GPU)
	case plan.FloorResident:
		return fmt.Sprintf("%s keeps %.2f < floor %.2f", q.name(w.Resident), r.Got, r.Limit)
	case plan.FloorSelf:
		return fmt.Sprintf("it keeps %.2f < floor %.2f", r.Got, r.Limit) + q.besides(w.GPU)
	case plan.PairBanned:
		return "it is kept apart from " + q.name(w.Resident)
	case plan.ProfileUnknown:
		if w.Resident != 0 && w.Resident != j.ID {
			return "nothing is known of " + q.name(w.Resident)
		}
		return "nothing is known of it: weft.dev/memory and weft.dev/profile say more" + q.besides(w.GPU)
	case plan.Native:
		return "whole for " + strings.Join(q.Holders(w.GPU), ", ")
	case plan.Drained, plan.GPUUnhealthy:
		return q.GPUs[w.GPU].Fault
	case plan.NodeMismatch:
		return q.mismatch(j, w.GPU)
	}
	return strings.TrimPrefix(q.besides(w.GPU), " ")
}

// besides names who is on a GPU: " beside ml/a, ml/b".
func (q *Queue) besides(gpu int) string {
	if who := q.Holders(gpu); len(who) > 0 {
		return " beside " + strings.Join(who, ", ")
	}
	return ""
}

// mismatch is what of a job's own terms excludes the node of a GPU.
func (q *Queue) mismatch(j *Job, gpu int) string {
	if j.confined != "" {
		return "it is bound to " + j.confined
	}
	i := q.State.GPUs[gpu].Node
	if i >= len(q.nodes.list) {
		return ""
	}
	for _, m := range j.Members {
		if why := q.nodes.why(i, m.Pod, nodeaffinity.GetRequiredNodeAffinity(m.Pod)); why != "" {
			return why
		}
	}
	return ""
}

// closest is a GPU of a node that a job may not be on: where it lacks nothing but room, if there is one; -1 for none.
func (q *Queue) closest(j *Job) int {
	found, p := -1, j.Members[0].Pod
	for g := range q.State.GPUs {
		i := q.State.GPUs[g].Node
		if i >= len(q.nodes.list) || q.GPUs[g].Fault != "" {
			continue
		}
		why := q.nodes.why(i, p, nodeaffinity.GetRequiredNodeAffinity(p))
		if why != "" && why == q.nodes.full(i, p) {
			return g
		}
		if why != "" && found < 0 {
			found = g
		}
	}
	return found
}

// Holders are who holds a GPU, native Pods or residents.
func (q *Queue) Holders(gpu int) []string {
	var who []string
	for _, u := range q.native[gpu] {
		who = append(who, u.Name)
	}
	for _, id := range q.reside[gpu] {
		who = append(who, q.name(id))
	}
	return who
}

// name is a job as people read it.
func (q *Queue) name(id box.ID) string {
	if j := q.Jobs[id]; j != nil {
		return j.Name
	}
	return "another job"
}

// yields is what would let two Pods of one Deployment share, by what keeps them apart.
var yields = map[plan.Code]string{
	plan.FloorSelf: "lower weft.dev/floor", plan.FloorResident: "lower weft.dev/floor", plan.MemoryReserved: "lower weft.dev/memory",
	plan.MemoryOverflow: "lower weft.dev/memory", plan.ClassConflict: "make weft.dev/class burstable", plan.ProfileUnknown: "state weft.dev/memory",
}

// ways tells of a rollout that is in its own way: a Pod of the same Deployment holds what this one waits for.
func (q *Queue) ways(j *Job, code plan.Code) string {
	p := j.Members[0].Pod
	for _, x := range q.ofDeployment(p) {
		if x.hash == p.Labels[hashLabel] {
			continue
		}
		text := fmt.Sprintf("; %s of the same %s holds %s: set its maxSurge to 0", q.name(x.job), OwnerOf(p), &q.GPUs[x.gpu])
		if how, ok := yields[code]; ok {
			text += ", or " + how + " until both fit"
		}
		return text
	}
	return ""
}

// replica is a Pod of a Deployment that has a GPU.
type replica struct {
	job  box.ID
	gpu  int
	hash string // of the template that it was made of
}

// ofDeployment are the Pods on GPUs of the Deployment that a Pod is of; none for one that is of none.
func (q *Queue) ofDeployment(p *corev1.Pod) []replica {
	if q.replicas == nil {
		q.replicas = map[string][]replica{}
		for g := range q.GPUs {
			for _, id := range q.reside[g] {
				other := q.Jobs[id].Members[0].Pod
				if o := OwnerOf(other); o.Kind == deployment {
					key := other.Namespace + "/" + o.Name
					q.replicas[key] = append(q.replicas[key], replica{id, g, other.Labels[hashLabel]})
				}
			}
		}
	}
	if o := OwnerOf(p); o.Kind == deployment {
		return q.replicas[p.Namespace+"/"+o.Name]
	}
	return nil
}

// deployment is the kind whose Pods replace each other while they run.
const deployment = "Deployment"

// mostNamed bounds how many GPUs a message names.
const mostNamed = 4

// Native says why a Pod that did not opt in waits for whole GPUs; false where there are enough.
func (q *Queue) Native(j *Job) (Word, bool) {
	whole, held := 0, []string{}
	for g := range q.GPUs {
		who := q.Holders(g)
		switch {
		case q.GPUs[g].Fault != "":
		case len(who) == 0:
			whole++
		case len(held) < mostNamed:
			held = append(held, q.GPUs[g].String()+" "+strings.Join(who, ", "))
		}
	}
	wants := pod.WholeGPUs(j.Members[0].Pod)
	if whole >= wants || len(q.GPUs) == 0 {
		return Word{}, false
	}
	text := fmt.Sprintf("%s: %d of %d GPUs are whole and free, it asks %d", plan.Native, whole, len(q.GPUs), wants)
	if len(held) > 0 {
		text += "; held: " + strings.Join(held, "; ")
		if n := len(q.GPUs) - whole - len(held); n > 0 {
			text += fmt.Sprintf("; and %d more", n)
		}
		text += ". One is free when all of its Pods have ended or were deleted"
	}
	return Word{Reason: Waiting, Code: plan.Native, Text: text}, true
}

// Placed says where a member is, and beside whom; with are the jobs that start there at the same time.
func (q *Queue) Placed(j *Job, m *Member, shares []claim.Share, with map[int][]box.ID) Word {
	var at, beside []string
	var others []estimate.Kind
	for _, g := range q.On(shares) {
		at = append(at, g.String())
		for _, id := range append(slices.Clone(q.reside[q.at[g.UUID]]), with[q.at[g.UUID]]...) {
			if id != j.ID && !slices.Contains(beside, q.name(id)) {
				beside = append(beside, q.name(id))
				others = append(others, q.Jobs[id].Kind)
			}
		}
	}
	text := strings.Join(at, ", ")
	if len(beside) > 0 {
		text += " beside " + strings.Join(beside, ", ")
	}
	switch {
	case len(shares) == 0:
	case shares[0].Whole:
		text += ": whole"
	default:
		text += ": " + Bytes(shares[0].Reserved) + " reserved"
	}
	mean, _, _, _ := q.book.Predict(j.Kind, others)
	return Word{Reason: Placed, Text: text + fmt.Sprintf(", predicted %.2f, floor %.2f", mean, m.Request.Floor)}
}

// Bytes is an amount as Kubernetes writes it: "8Gi", rounded to two decimals of a unit where it is not whole.
func Bytes(b unit.Bytes) string {
	for _, u := range []struct {
		size unit.Bytes
		name string
	}{{unit.TiB, "Ti"}, {unit.GiB, "Gi"}, {unit.MiB, "Mi"}, {unit.KiB, "Ki"}} {
		if b >= u.size {
			text := fmt.Sprintf("%.2f", float64(b)/float64(u.size))
			return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + u.name
		}
	}
	return fmt.Sprint(int64(b))
}

// Stuck are the Pods that are bound to a node where they do not fit any more: who has an owner is made anew elsewhere by it, others
// can only wait.
func (q *Queue) Stuck(d *dispatch.Decision) []Eviction {
	var list []Eviction
	for _, w := range d.Waits {
		j := q.Jobs[w.Job]
		if j.confined == "" || j.waits != "" || slices.Contains(passing, w.Reason.Code) {
			continue
		}
		p := j.Members[0].Pod
		if OwnerOf(p).Kind == "Pod" {
			continue
		}
		list = append(list, Eviction{p, w.Reason.Code, fmt.Sprintf("from %s: its GPU was taken before it started, and no other one there takes it (%s)",
			j.confined, w.Reason.Code)})
	}
	return list
}

// passing are reasons that go by: a Pod that waits for one of them is not stuck.
var passing = []plan.Code{plan.Priority, plan.Quota, plan.Planning, plan.Dependency}
