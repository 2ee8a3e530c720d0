package look

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/unit"
)

// Explanation is why a Pod waits, or sits where it sits, and what would have to change.
type Explanation struct {
	Pod
	Gang      []string    `json:"gang"`      // Pods that start together, it among them; empty for a Pod on its own
	Told      string      `json:"told"`      // the reason in full, as its Event has it
	Never     bool        `json:"never"`     // it never starts as it is: its user must change something
	Refused   []Count     `json:"refused"`   // how often each reason refused, the most frequent first
	Refusals  []Refusal   `json:"refusals"`  // of each GPU, the nearest first
	Fits      int         `json:"fits"`      // GPUs that would take it
	Ahead     []string    `json:"ahead"`     // jobs that wait before it
	Promised  *time.Time  `json:"promised"`  // when it starts at the latest
	Opens     string      `json:"opens"`     // what would have to change
	Ends      []string    `json:"ends"`      // jobs, of a native Pod: Pods, whose end would let it start
	Places    []Place     `json:"places"`    // where it is
	Range     *Range      `json:"predicted"` // its rate as predicted
	Scheduler string      `json:"scheduler"` // what the scheduler says of it
	Advice    []string    `json:"advice"`    // what its user may do
	Condition []Condition `json:"conditions"`
}

// Count is how many GPUs one reason refused.
type Count struct {
	Code plan.Code `json:"code"`
	GPUs int       `json:"gpus"`
}

// Refusal is what a GPU says to a Pod.
type Refusal struct {
	GPU     string    `json:"gpu"`
	Beside  []string  `json:"beside"`
	Code    plan.Code `json:"code"`    // "" where it would take it
	Text    string    `json:"text"`    // numbers, or when it is free
	Nearest bool      `json:"nearest"` // it is the one that comes nearest to taking it
}

// Place is a GPU that a Pod is on.
type Place struct {
	GPU       string     `json:"gpu"`
	Model     string     `json:"model"`
	Reserved  unit.Bytes `json:"reserved_bytes"` // by all
	Usable    unit.Bytes `json:"usable_bytes"`
	Residents []Resident `json:"residents"` // beside it
}

// Resident is a Pod beside another.
type Resident struct {
	Name     string     `json:"name"`
	Class    string     `json:"class"`
	Floor    float64    `json:"floor_fraction"`
	Reserved unit.Bytes `json:"reserved_bytes"`
	Peak     unit.Bytes `json:"peak_bytes"`
}

// Range is a prediction.
type Range struct {
	Rate  float64 `json:"rate_fraction"`
	Low   float64 `json:"low_fraction"`
	High  float64 `json:"high_fraction"`
	Basis string  `json:"basis"`
}

// Condition is what weft last wrote on the Pod.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Message string    `json:"message"`
	Since   time.Time `json:"since_at"`
}

// Explain explains a Pod. It is false where there is no such Pod.
func (l *Look) Explain(namespace, name string) (Explanation, bool) {
	i := slices.IndexFunc(l.c.Pods, func(p *corev1.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 {
		return Explanation{}, false
	}
	p := l.c.Pods[i]
	state := l.stateOf(p)
	e := Explanation{Pod: l.row(p, state), Gang: []string{}, Refused: []Count{}, Refusals: []Refusal{},
		Ahead: []string{}, Ends: []string{}, Places: []Place{}, Advice: []string{}, Condition: conditionsOf(p)}
	e.Mode = modeOf(p)
	m, known := l.members[p.UID]
	if known && len(m.job.Members) > 1 {
		for _, other := range m.job.Members {
			e.Gang = append(e.Gang, nameOf(other.Pod))
		}
	}
	if state == Waiting || state == Placed {
		e.Scheduler = scheduler(p)
	}
	switch {
	case state == Ended:
		e.Told = "it has ended: " + string(p.Status.Phase)
	case state == Invalid:
		e.Told = l.q.Faults[types.NamespacedName{Namespace: namespace, Name: name}].Text
	case len(l.places[p.UID]) > 0:
		l.explainPlace(&e, p)
	case state == Waiting && known:
		l.explainWait(&e, m)
	case state == Waiting && modeOf(p) == Native:
		e.Told = l.strange(p)
	}
	l.advise(&e, p)
	return e, true
}

func conditionsOf(p *corev1.Pod) []Condition {
	list := []Condition{}
	for _, c := range p.Status.Conditions {
		if strings.HasPrefix(string(c.Type), domain) {
			list = append(list, Condition{string(c.Type), string(c.Status), c.Message, c.LastTransitionTime.Time})
		}
	}
	return list
}

// domain begins what is weft's.
const domain = "weft.dev/"

// explainPlace says where a Pod is, and beside whom.
func (l *Look) explainPlace(e *Explanation, p *corev1.Pod) {
	uses := l.q.Uses()
	for _, g := range l.places[p.UID] {
		gpu := &l.q.GPUs[g]
		place := Place{GPU: gpu.String(), Model: gpu.Model, Reserved: uses[g].Reserved, Usable: gpu.Memory, Residents: []Resident{}}
		for _, h := range l.on[g] {
			if h.pod == p {
				continue
			}
			r := Resident{Name: h.name}
			if h.pod != nil && h.job != nil {
				m := l.members[h.pod.UID]
				r.Class, r.Floor = m.Request.Class.String(), m.Request.Floor
				r.Reserved, r.Peak = l.memoryOf(m)
			}
			place.Residents = append(place.Residents, r)
		}
		e.Places = append(e.Places, place)
	}
	if m, known := l.members[p.UID]; known {
		if mean, low, high, basis, ok := l.q.Predict(m.job.ID); ok {
			e.Range = &Range{mean, low, high, basis}
		}
	}
}

// explainWait says what each GPU lacks for a job that waits.
func (l *Look) explainWait(e *Explanation, m member) {
	x, ok := dispatch.Explain(&l.q.State, m.job.ID)
	if !ok {
		return
	}
	for _, id := range x.Ahead {
		e.Ahead = append(e.Ahead, l.q.Name(id))
	}
	if !x.Promised.IsZero() {
		e.Promised = &x.Promised
	}
	if m.job.Native {
		l.explainNative(e, m, x.Refusals)
		return
	}
	counts := map[plan.Code]int{}
	for _, r := range x.Refusals {
		out := Refusal{GPU: l.q.GPUs[r.GPU].String(), Beside: l.holders(r.GPU), Code: r.Reason.Code}
		if r.Reason.Refused() {
			out.Text = l.numbers(m.job.ID, r)
		}
		if !r.Reason.Refused() || r.Reason.Code == plan.Priority {
			e.Fits++
		}
		counts[r.Reason.Code]++
		e.Refusals = append(e.Refusals, out)
	}
	delete(counts, "")
	e.Refused = sorted(counts)
	if s, starts := l.starts[m.job.ID]; starts {
		e.Told = "it fits on " + strings.Join(l.gpus(s.GPUs), ", ") + " and is about to be placed"
		if l.c.Now.Sub(m.Pod.CreationTimestamp.Time) > unplaced {
			e.Advice = append(e.Advice, "It fits, and nobody has placed it: is weft's controller running?")
		}
		return
	}
	w := l.waits[m.job.ID]
	e.Never = queue.Never(w.Reason.Code)
	if len(e.Refusals) > 0 {
		e.Refusals[0].Nearest = !e.Never && e.Refusals[0].Code != ""
	}
	e.Told = l.q.Wait(w).Text
	for _, id := range x.Ends {
		e.Ends = append(e.Ends, l.q.Name(id))
	}
	e.Opens = l.opens(m, &x)
}

// numbers are those of a refusal, for people.
func (l *Look) numbers(id box.ID, r dispatch.Refusal) string {
	j := l.jobs[id]
	switch own := j.Memory.Persistent; r.Reason.Code {
	case plan.MemoryReserved:
		text := fmt.Sprintf("%s + %s", queue.Bytes(r.Held), queue.Bytes(own))
		if r.Most > 0 {
			text += " + up to " + queue.Bytes(r.Most)
		}
		return fmt.Sprintf("%s = %s, usable %s", text, queue.Bytes(unit.Bytes(r.Reason.Got)), queue.Bytes(r.Room))
	case plan.MemoryOverflow:
		return fmt.Sprintf("P(over %s) %.2f, allowed %.2f", queue.Bytes(r.Room), r.Reason.Got, r.Reason.Limit)
	case plan.FloorSelf:
		return fmt.Sprintf("it keeps at least %s, floor %s", percent(r.Reason.Got), percent(r.Reason.Limit))
	case plan.FloorResident:
		return fmt.Sprintf("%s keeps at least %s, floor %s", l.q.Name(r.Resident), percent(r.Reason.Got), percent(r.Reason.Limit))
	case plan.MaxResidents:
		return fmt.Sprintf("%d are there, at most %.0f", len(r.Beside), r.Reason.Limit)
	case plan.TooLarge:
		if r.Reason.Got >= float64(unit.MiB) {
			return fmt.Sprintf("asks %s, usable %s", queue.Bytes(unit.Bytes(r.Reason.Got)), queue.Bytes(unit.Bytes(r.Reason.Limit)))
		}
		return fmt.Sprintf("asks %.0f GPUs of one node, it has %.0f", r.Reason.Got, r.Reason.Limit)
	case plan.Gang:
		return fmt.Sprintf("asks %.0f GPUs of one node, %.0f are open", r.Reason.Got, r.Reason.Limit)
	case plan.Priority:
		return l.q.Name(r.After) + " comes first, and could be delayed"
	case plan.ClassConflict:
		return "a guaranteed Pod shares with one besteffort Pod at most"
	case plan.ProfileUnknown:
		if r.Resident != 0 && r.Resident != id {
			return "nothing is known of " + l.q.Name(r.Resident) + ": it shares with nobody"
		}
		return "nothing is known of it: it shares with nobody"
	}
	return l.q.Lacks(id, r)
}

// percent is a share of 1, rounded down where that is what a floor is held against.
func percent(v float64) string { return fmt.Sprintf("%.0f %%", math.Floor(v*100+1e-6)) }

// sorted are counts, the greatest first, of equals by code.
func sorted(counts map[plan.Code]int) []Count {
	list := []Count{}
	for code, n := range counts {
		list = append(list, Count{code, n})
	}
	slices.SortFunc(list, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), strings.Compare(string(a.Code), string(b.Code)))
	})
	return list
}

// opens is what would have to change for a job to start.
func (l *Look) opens(m member, x *dispatch.Explanation) string {
	if m.job.Why() != "" {
		return ""
	}
	var ways []string
	if len(x.Ends) > 0 {
		way := "when " + l.names(x.Ends) + " " + form(len(x.Ends), "ends", "end")
		if !x.EndsBy.IsZero() {
			way += fmt.Sprintf(" (at the latest in %s)", max(0, x.EndsBy.Sub(l.c.Now)).Round(time.Second))
		}
		ways = append(ways, way)
	}
	if x.Peak > 0 {
		ways = append(ways, fmt.Sprintf("now with weft.dev/memory <= %s (what-if, %s)", queue.Bytes(x.Peak/unit.MiB*unit.MiB), &l.q.GPUs[x.PeakGPU]))
	}
	if x.Floor > 0 {
		ways = append(ways, fmt.Sprintf("now with weft.dev/floor <= %.2f (what-if, %s)", x.Floor, &l.q.GPUs[x.FloorGPU]))
	}
	if len(ways) == 0 {
		return ""
	}
	return "Starts " + strings.Join(ways, ", or ")
}

// names are jobs as people read them.
func (l *Look) names(ids []box.ID) string {
	var list []string
	for _, id := range ids {
		list = append(list, l.q.Name(id))
	}
	return and(list)
}

// and joins names: "a", "a and b", "a, b and c".
func and(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}
