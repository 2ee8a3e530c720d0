package controller

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/plan"
)

// voice tells Pods their news, as an event and in their condition weft.dev/Placed: once for each change of the reason, and never in the
// way of placing others. Of a Pod whose news is not told yet only the latest is.
type voice struct {
	client kubernetes.Interface
	log    *slog.Logger

	mu    sync.Mutex
	said  map[types.UID]said
	next  map[types.UID]news
	order []types.UID
	more  chan struct{}
}

// said is what a Pod was told last.
type said struct {
	reason, code string
	text         string
	at           time.Time
}

// news is what a Pod is to be told.
type news struct {
	pod       *corev1.Pod
	word      queue.Word
	condition bool
	at        time.Time
}

// Bounds of telling.
const (
	tellEach   = 10 * time.Millisecond // at most so often: a hundred in a second
	tellAgain  = 10 * time.Second      // a Pod that waits, at the earliest: reasons may come and go
	mostText   = 1024                  // bytes of an event, by the API
	mostPods   = 50_000                // that are remembered
	component  = "weft"
	cutOff     = "..."
	nameSuffix = 8 // random bytes of an event's name
)

func newVoice(client kubernetes.Interface, log *slog.Logger) *voice {
	return &voice{client: client, log: log, said: map[types.UID]said{}, next: map[types.UID]news{}, more: make(chan struct{}, 1)}
}

// isNews says whether a Pod is to be told something: it was told something else, and not just now. What its condition says was told by
// whoever wrote that. The text does not count, but where the API refuses: those are its words.
func (v *voice) isNews(p *corev1.Pod, w queue.Word, condition bool) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.news(p, w, condition)
}

func (v *voice) news(p *corev1.Pod, w queue.Word, condition bool) bool {
	last, known := v.said[p.UID]
	if !known && condition {
		last, known = fromCondition(p)
	}
	if known && last.reason == w.Reason && last.code == string(w.Code) && (w.Reason != queue.Refused || last.text == w.Text) {
		delete(v.next, p.UID)
		return false
	}
	return !known || w.Reason != queue.Waiting || time.Since(last.at) >= tellAgain
}

// tell has a Pod told, if it is news.
func (v *voice) tell(p *corev1.Pod, w queue.Word, condition bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.news(p, w, condition) {
		return
	}
	now := time.Now()
	if _, pending := v.next[p.UID]; !pending {
		v.order = append(v.order, p.UID)
	}
	v.next[p.UID] = news{p, w, condition, now}
	select {
	case v.more <- struct{}{}:
	default:
	}
}

// fromCondition is what the condition of a Pod says it was told.
func fromCondition(p *corev1.Pod) (said, bool) {
	for _, c := range p.Status.Conditions {
		if string(c.Type) != kube.ConditionPlaced {
			continue
		}
		switch {
		case c.Status == corev1.ConditionTrue:
			return said{reason: queue.Placed, at: c.LastTransitionTime.Time}, true
		case c.Reason == queue.Refused:
			return said{reason: queue.Refused, code: c.Reason, text: c.Message, at: c.LastTransitionTime.Time}, true
		case queue.Never(plan.Code(c.Reason)):
			return said{reason: queue.CannotFit, code: c.Reason, at: c.LastTransitionTime.Time}, true
		}
		return said{reason: queue.Waiting, code: c.Reason, at: c.LastTransitionTime.Time}, true
	}
	return said{}, false
}

// run tells until the context ends.
func (v *voice) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.more:
		}
		for n, ok := v.take(); ok; n, ok = v.take() {
			v.say(ctx, n)
			select {
			case <-ctx.Done():
				return
			case <-time.After(tellEach):
			}
		}
	}
}

// take is the oldest news that is still to be told.
func (v *voice) take() (news, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(v.order) > 0 {
		uid := v.order[0]
		v.order = v.order[1:]
		n, ok := v.next[uid]
		if !ok {
			continue
		}
		delete(v.next, uid)
		if len(v.said) >= mostPods {
			clear(v.said) // the worst of it is an event told twice
		}
		v.said[uid] = said{n.word.Reason, string(n.word.Code), n.word.Text, n.at}
		return n, true
	}
	v.order = nil
	return news{}, false
}

// say writes an event and the condition. Neither is worth a second try: the next news comes.
func (v *voice) say(ctx context.Context, n news) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if _, err := v.client.CoreV1().Events(n.pod.Namespace).Create(ctx, event(n),
		metav1.CreateOptions{}); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		v.log.Warn("an event cannot be written", "pod", n.pod.Namespace+"/"+n.pod.Name, "error", err)
	}
	if !n.condition {
		return
	}
	patch, err := condition(n.pod, conditionOf(n))
	if err == nil {
		_, err = v.client.CoreV1().Pods(n.pod.Namespace).Patch(ctx, n.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		v.log.Warn("a condition cannot be written", "pod", n.pod.Namespace+"/"+n.pod.Name, "error", err)
	}
}

// event is news as the API has it.
func event(n news) *corev1.Event {
	kind := corev1.EventTypeNormal
	if n.word.Warning {
		kind = corev1.EventTypeWarning
	}
	text, at := n.word.Text, metav1.NewTime(n.at)
	if len(text) > mostText {
		text = text[:mostText-len(cutOff)] + cutOff
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.pod.Namespace, Name: eventName(n.pod.Name)},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: n.pod.Namespace, Name: n.pod.Name, UID: n.pod.UID,
			ResourceVersion: n.pod.ResourceVersion},
		Reason: n.word.Reason, Message: text, Type: kind, Count: 1, FirstTimestamp: at, LastTimestamp: at,
		Source: corev1.EventSource{Component: component}, ReportingController: component,
	}
}

// eventName is a name that no other event has.
func eventName(pod string) string {
	suffix := make([]byte, nameSuffix)
	_, _ = rand.Read(suffix) // it never fails
	const most = 253 - 1 - 2*nameSuffix
	return pod[:min(len(pod), most)] + "." + hex.EncodeToString(suffix)
}

// conditionOf is news as a condition.
func conditionOf(n news) corev1.PodCondition {
	c := corev1.PodCondition{Type: kube.ConditionPlaced, Status: corev1.ConditionFalse, Reason: string(n.word.Code), Message: n.word.Text,
		LastTransitionTime: metav1.NewTime(n.at)}
	if n.word.Reason == queue.Placed {
		c.Status, c.Reason = corev1.ConditionTrue, queue.Placed
	}
	return c
}
