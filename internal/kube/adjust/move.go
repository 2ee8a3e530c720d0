package adjust

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/plan"
)

// move is a Pod that was asked to go for the sake of a floor.
type move struct {
	pod   types.UID
	owner string
	at    time.Time
	gone  bool      // it went, or was seen to go
	by    types.UID // the Pod that its owner made in its place; "" for none yet
}

// Times and numbers of moves.
const (
	coolDown   = time.Hour   // that a conflict keeps two kinds apart: a better prediction would only start it anew
	accounted  = time.Hour   // that a move counts against the budget
	askedLasts = time.Minute // for a Pod that was asked to go to begin to: then it was refused, and may be asked again
	mostLooked = 8           // GPUs that somebody is looked for on which to leave, in one look: each takes a plan
)

// note is what is done for a job below its floor.
type note struct {
	code plan.Code
	text string
}

// Codes of notes, beside plan.Budget.
const (
	Moving plan.Code = "Moving" // somebody leaves
	Fixed  plan.Code = "Fixed"  // nobody can
)

// budget is how often Pods may be moved.
type budget struct {
	moves int // in an hour
	rest  time.Duration
}

// budgetOf is the budget of a policy, or that of its defaults.
func budgetOf(p *v1alpha1.SharingPolicy) budget {
	b := budget{12, 10 * time.Minute}
	if p == nil {
		return b
	}
	if n := p.Spec.Migration.Moves; n != nil {
		b.moves = int(*n)
	}
	if s := p.Spec.Migration.CooldownSeconds; s != nil {
		b.rest = time.Duration(*s) * time.Second
	}
	return b
}

// movedAt is when the Pod was moved whose place a Pod has taken.
func movedAt(p *corev1.Pod) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, p.Annotations[kube.AnnotationMoved])
	return at, err == nil
}

// ownerOf names what makes a Pod anew.
func ownerOf(p *corev1.Pod) string { return p.Namespace + "/" + queue.OwnerOf(p).String() }

// resting are the Pods that are not moved now: those that took the place of one that was moved a short while ago, and those of its
// owner until it has made one.
func (a *Adjuster) resting(pods []*corev1.Pod, b budget, now time.Time) map[types.UID]bool {
	owners := map[string]bool{}
	for _, m := range a.moves {
		if m.by == "" && now.Sub(m.at) < b.rest {
			owners[m.owner] = true
		}
	}
	resting := map[types.UID]bool{}
	for _, p := range pods {
		if at, moved := movedAt(p); moved && now.Sub(at) < b.rest || len(owners) > 0 && owners[ownerOf(p)] {
			resting[p.UID] = true
		}
	}
	return resting
}

// Replaces says when the Pod was moved whose place a waiting one takes; zero for none. It is to be written on it once it is placed.
func (a *Adjuster) Replaces(p *corev1.Pod) time.Time {
	for i := range a.moves {
		m := &a.moves[i]
		if m.by == p.UID {
			return m.at
		}
		if m.by == "" && m.pod != p.UID && m.owner == ownerOf(p) && !p.CreationTimestamp.Time.Before(m.at.Truncate(time.Second)) {
			m.by = p.UID
			return m.at
		}
	}
	return time.Time{}
}

// settle follows the Pods that were asked to go, and forgets old moves. One that is still there after a while was refused.
func (a *Adjuster) settle(q *queue.Queue) {
	now := q.State.Now
	a.moves = slices.DeleteFunc(a.moves, func(m move) bool {
		return now.Sub(m.at) > accounted && m.gone || !m.gone && now.Sub(m.at) > askedLasts && q.Stays(m.pod)
	})
	for i := range a.moves {
		a.moves[i].gone = a.moves[i].gone || !q.Stays(a.moves[i].pod)
	}
}

// spent is how many moves count against the budget: those of this process, and those that Pods tell of.
func (l *look) spent() int {
	n, counted := len(l.moves), map[types.UID]bool{}
	for _, m := range l.moves {
		counted[m.by] = true
	}
	for _, j := range l.q.Jobs {
		for _, m := range j.Members {
			if at, moved := movedAt(m.Pod); moved && !counted[m.Pod.UID] && l.q.State.Now.Sub(at) < accounted {
				n++
			}
		}
	}
	return n
}

// relieve looks on the GPUs of which something was heard for somebody to leave, where a resident is believed below its floor.
func (l *look) relieve(b budget) {
	gpus := map[int]bool{}
	for _, s := range l.fresh {
		for _, g := range s.state.On {
			gpus[g] = true
		}
	}
	looked := 0
	for g := range l.q.GPUs {
		if gpus[g] && looked < mostLooked && l.settled(g) {
			looked++
			l.relieveGPU(g, b)
		}
	}
}

// settled says whether all residents of a GPU run, and none of them is on its way: else what is seen there is about to change.
func (l *look) settled(g int) bool {
	residents := l.q.Residents(g)
	for _, id := range residents {
		for _, m := range l.q.Jobs[id].Members {
			asked := slices.ContainsFunc(l.moves, func(x move) bool { return x.pod == m.Pod.UID })
			if asked || !running(m.Pod) {
				return false
			}
		}
	}
	return len(residents) > 1
}

func (l *look) relieveGPU(g int, b budget) {
	remedy, needed := dispatch.Repair(&l.q.State, l.mean, g)
	if !needed {
		return
	}
	if a, b := l.q.Jobs[remedy.Apart[0]].Kind, l.q.Jobs[remedy.Apart[1]].Kind; !l.book.Banned(a, b) && l.book.Ban(a, b, l.q.State.Now.Add(coolDown)) {
		l.found.News = max(l.found.News, 1)
	}
	n := note{Fixed, "none of them can be moved"}
	switch left := b.moves - l.spent(); {
	case remedy.Move.Job == 0:
	case left < len(l.q.Jobs[remedy.Move.Job].Members):
		n = note{plan.Budget, fmt.Sprintf("the policy's %d moves an hour are spent", b.moves)}
	default:
		l.move(remedy, g)
		n = note{Moving, "moving " + l.q.Name(remedy.Move.Job)}
	}
	for _, id := range remedy.Below {
		l.notes[id] = n
	}
}

// move has the Pods of a job evicted.
func (l *look) move(r dispatch.Remedy, g int) {
	text := fmt.Sprintf("from %s: %s below its floor", &l.q.GPUs[g], l.names(r.Below))
	if len(r.Below) > 1 {
		text = fmt.Sprintf("from %s: %s below their floors", &l.q.GPUs[g], l.names(r.Below))
	}
	for _, m := range l.q.Jobs[r.Move.Job].Members {
		l.found.Moves = append(l.found.Moves, queue.Eviction{Pod: m.Pod, Reason: plan.FloorResident, Text: text})
		l.moves = append(l.moves, move{pod: m.Pod.UID, owner: ownerOf(m.Pod), at: l.q.State.Now})
	}
}

// mean is the slowdown that one job is believed to add to another.
func (l *look) mean(i, other box.ID) float64 {
	return l.book.Mean(l.q.Jobs[i].Kind, l.q.Jobs[other].Kind)
}
