package look

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/pod"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/plan"
)

// explainNative says of a Pod that wants whole GPUs who holds each and what would free it: those with the fewest Pods first, then those
// that no Pod's end opens.
func (l *Look) explainNative(e *Explanation, m member, refusals []dispatch.Refusal) {
	counts := map[plan.Code]int{}
	want, open := pod.WholeGPUs(m.Pod), l.open(m.job)
	var closed []Refusal
	for _, r := range refusals {
		g := &l.q.GPUs[r.GPU]
		out := Refusal{GPU: g.String(), Beside: l.holders(r.GPU)}
		switch n := len(open[l.q.State.GPUs[r.GPU].Node]); {
		case g.Fault != "", r.Reason.Code == plan.NodeMismatch:
			out.Code, out.Text = r.Reason.Code, cmp.Or(g.Fault, l.numbers(m.job.ID, r))
			closed = append(closed, out)
		case n < want:
			out.Code, out.Text = plan.Gang, fmt.Sprintf("asks %d GPUs of one node, its node has %d", want, n)
			closed = append(closed, out)
		case len(l.on[r.GPU]) == 0:
			e.Fits++
			e.Refusals = append(e.Refusals, out)
		default:
			out.Code, out.Text = plan.Native, l.frees(r.GPU)
			if !slices.ContainsFunc(l.on[r.GPU], func(h holder) bool { return h.job == nil }) {
				out.Code = sharedCode
			}
			e.Refusals = append(e.Refusals, out)
		}
		counts[out.Code]++
	}
	delete(counts, "")
	e.Refused = sorted(counts)
	slices.SortStableFunc(e.Refusals, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(len(a.Beside), len(b.Beside)), strings.Compare(a.GPU, b.GPU))
	})
	if len(e.Refusals) > 0 {
		e.Refusals[0].Nearest = e.Refusals[0].Code != ""
	}
	e.Refusals = append(e.Refusals, closed...)
	e.Told = fmt.Sprintf("%s: %d of %d GPUs are whole and free, it asks %d", plan.Native, e.Fits, len(l.q.GPUs), want)
	e.Ahead = []string{} // the scheduler has an order of its own
	node, ends := l.least(want, open)
	switch {
	case node < 0:
		e.Opens = fmt.Sprintf("No node that it may be on has %s that take Pods", several(want, "GPU", "GPUs"))
	case len(ends) == 0:
		e.Told += "; it waits for the scheduler"
	default:
		e.Ends = ends
		e.Opens = fmt.Sprintf("Starts on %s when %s %s or %s deleted", l.q.GPUs[open[node][0]].Node, and(ends),
			form(len(ends), "ends", "have ended"), form(len(ends), "is", "were"))
		e.Advice = append(e.Advice, "Kubernetes evicts nobody for a GPU: a higher priority frees none.")
	}
}

// open are the GPUs without a fault of each node that a job may be on.
func (l *Look) open(j *queue.Job) map[int][]int {
	may, open := l.jobs[j.ID].Nodes, map[int][]int{}
	for g := range l.q.GPUs {
		node := l.q.State.GPUs[g].Node
		if l.q.GPUs[g].Fault == "" && (may == nil || node < len(may.May) && may.May[node]) {
			open[node] = append(open[node], g)
		}
	}
	return open
}

// sharedCode is what keeps a whole GPU from a Pod: others share it.
const sharedCode plan.Code = "Shared"

// frees says what has to end for a GPU to be whole and free, and whose Pods can go on elsewhere.
func (l *Look) frees(g int) string {
	var movable []string
	for _, h := range l.on[g] {
		if h.job != nil && h.pod != nil && l.members[h.pod.UID].Request.Migratable {
			movable = append(movable, h.name)
		}
	}
	text := "free when it ends"
	if n := len(l.holders(g)); n > 1 {
		text = fmt.Sprintf("free when all %d have ended", n)
	}
	if len(movable) > 0 {
		text += "; migratable: " + strings.Join(movable, ",")
	}
	return text
}

// least is the node where the fewest Pods have to end for so many open GPUs to be free, and those Pods; -1 where no node has so many.
func (l *Look) least(want int, open map[int][]int) (node int, ends []string) {
	node = -1
	for n := range len(l.c.Nodes) + 1 {
		if len(open[n]) < want {
			continue
		}
		names := l.fewest(want, open[n])
		if node < 0 || len(names) < len(ends) {
			node, ends = n, names
		}
	}
	return node, ends
}

// fewest are Pods whose end frees so many of some GPUs, none of them for nothing: always the GPU next that the fewest further Pods hold.
func (l *Look) fewest(want int, gpus []int) []string {
	names, left := []string{}, slices.Clone(gpus)
	further := func(g int) int {
		n := 0
		for _, name := range l.holders(g) {
			if !slices.Contains(names, name) {
				n++
			}
		}
		return n
	}
	for range want {
		i := 0
		for k := range left {
			if further(left[k]) < further(left[i]) {
				i = k
			}
		}
		for _, name := range l.holders(left[i]) {
			names = appendNew(names, name)
		}
		left = slices.Delete(left, i, i+1)
	}
	return names
}

// advise adds what the user of a Pod may do: of one that did not opt in, how it would.
func (l *Look) advise(e *Explanation, p *corev1.Pod) {
	if e.Mode != Native || e.State == Ended {
		return
	}
	i := slices.IndexFunc(l.c.Namespaces, func(n *corev1.Namespace) bool { return n.Name == p.Namespace })
	shares := i >= 0 && l.c.Namespaces[i].Labels[kube.LabelShare] == "enabled"
	owner := queue.OwnerOf(p)
	switch s := p.Spec.SchedulerName; {
	case owner.Kind == "DaemonSet":
		e.Advice = append(e.Advice, "It did not opt in: the Pods of a DaemonSet take whole GPUs.")
	case s != "" && s != corev1.DefaultSchedulerName:
		e.Advice = append(e.Advice, "It did not opt in: Pods of scheduler "+s+" take whole GPUs; without spec.schedulerName it could share.")
	case shares:
		e.Advice = append(e.Advice, "It did not opt in: namespace "+p.Namespace+
			" shares, and the Pod is older than that or was created around weft. Create it anew to share.")
	default:
		e.Advice = append(e.Advice, fmt.Sprintf("It did not opt in: it takes whole GPUs. To share, annotate %s with weft.dev/floor: \"0.9\", or label its namespace "+
			"(kubectl label namespace %s weft.dev/share=enabled), and create it anew.", template(owner), p.Namespace))
	}
}

// template is where the annotations of a Pod of an owner are written.
func template(o queue.Owner) string {
	if o.Kind == "Pod" {
		return "it"
	}
	return "the Pod template of " + o.String()
}
