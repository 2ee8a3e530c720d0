package look

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/plan"
)

// explainNative says of a Pod that wants whole GPUs who holds each and what would free it: those with the fewest Pods first, then those
// that no Pod's end opens.
func (l *Look) explainNative(e *Explanation, m member, refusals []dispatch.Refusal) {
	counts := map[plan.Code]int{}
	var closed []Refusal
	for _, r := range refusals {
		g := &l.q.GPUs[r.GPU]
		out := Refusal{GPU: g.String(), Beside: l.holders(r.GPU)}
		mismatch := r.Reason.Code == plan.NodeMismatch || r.Reason.Code == plan.TooLarge || r.Reason.Code == plan.Gang
		switch {
		case g.Fault != "", mismatch:
			out.Code, out.Text = r.Reason.Code, cmp.Or(g.Fault, l.numbers(m.job.ID, r))
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
	e.Refusals = append(e.Refusals, closed...)
	e.Told = fmt.Sprintf("%s: %d of %d GPUs are whole and free, it asks %d", plan.Native, e.Fits, len(l.q.GPUs), WholeGPUs(m.Pod))
	if e.Opens = l.opensNative(m.job); e.Opens == "" {
		e.Told += "; it waits for the scheduler"
		return
	}
	e.Advice = append(e.Advice, "Kubernetes evicts nobody for a GPU: a higher priority frees none.")
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
	names := l.holders(g)
	text := "free when " + and(names) + " " + verb(len(names), "ends", "have ended")
	if len(movable) > 0 {
		text += "; " + and(movable) + " may be deleted: migratable"
	}
	return text
}

// opensNative is the least that has to end for a Pod to have its GPUs on one node.
func (l *Look) opensNative(j *queue.Job) string {
	want, may := WholeGPUs(j.Members[0].Pod), l.jobs[j.ID].Nodes
	byNode := map[int][]int{}
	for g := range l.q.GPUs {
		node := l.q.State.GPUs[g].Node
		if l.q.GPUs[g].Fault == "" && (may == nil || node < len(may.May) && may.May[node]) {
			byNode[node] = append(byNode[node], g)
		}
	}
	var best []string
	at := -1
	for node := range len(l.c.Nodes) + 1 {
		gpus := byNode[node]
		if len(gpus) < want {
			continue
		}
		slices.SortStableFunc(gpus, func(a, b int) int { return cmp.Compare(len(l.holders(a)), len(l.holders(b))) })
		names := []string{}
		for _, g := range gpus[:want] {
			for _, name := range l.holders(g) {
				names = appendNew(names, name)
			}
		}
		if at < 0 || len(names) < len(best) {
			best, at = names, gpus[0]
		}
	}
	switch {
	case at < 0:
		return fmt.Sprintf("No node that it may be on has %s that take Pods", several(want, "GPU", "GPUs"))
	case len(best) == 0:
		return ""
	}
	return fmt.Sprintf("Starts on %s when %s %s or %s deleted", l.q.GPUs[at].Node, and(best), verb(len(best), "ends", "have ended"), verb(len(best), "is", "were"))
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
		e.Advice = append(e.Advice, "It did not opt in: namespace "+p.Namespace+" shares, and the Pod is older than that or was created around weft. Create it anew to share.")
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
