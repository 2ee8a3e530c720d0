package adjust

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/queue"
)

// tell says whether a job holds its floor, and that it goes on where it was moved.
func (l *look) tell(s *seen) {
	v := l.views[viewOf(s.job)]
	pods := podsOf(s.job)
	if v.windows == 1 {
		l.resumed(s)
	}
	word := queue.Word{Reason: Held, Quiet: true, Text: fmt.Sprintf("%.2f, floor %.2f", v.rate, s.state.Floor)}
	if v.below > 0 {
		word = queue.Word{Reason: BelowFloor, Code: l.notes[s.job.ID].code, Warning: true,
			Text: fmt.Sprintf("%.2f < floor %.2f for %.0fs", v.rate, s.state.Floor, max(1, v.below.Seconds()))}
	}
	if len(s.others) > 0 {
		word.Text += " beside " + l.names(s.others)
	}
	if n := l.notes[s.job.ID]; word.Code != "" {
		word.Text += "; " + n.text
	}
	l.found.Told = append(l.found.Told, Told{pods, word})
}

// resumed says that a Pod goes on for one that was moved. It is said once: its condition tells the next controller so.
func (l *look) resumed(s *seen) {
	for _, m := range s.job.Members {
		at, moved := movedAt(m.Pod)
		if !moved || slices.ContainsFunc(m.Pod.Status.Conditions, func(c corev1.PodCondition) bool { return string(c.Type) == kube.ConditionFloorHeld }) {
			continue
		}
		pause := began(s.window).Sub(at).Round(time.Second)
		word := queue.Word{Reason: Resumed, Text: fmt.Sprintf("on %s, paused %v", m.Pod.Annotations[kube.AnnotationGPU], max(0, pause))}
		l.found.Told = append(l.found.Told, Told{[]*corev1.Pod{m.Pod}, word})
	}
}

func podsOf(j *queue.Job) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, m := range j.Members {
		pods = append(pods, m.Pod)
	}
	return pods
}

// names are jobs as people read them.
func (l *look) names(ids []box.ID) string {
	var names []string
	for _, id := range ids {
		names = append(names, l.q.Name(id))
	}
	return strings.Join(names, ", ")
}
