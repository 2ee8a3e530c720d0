package controller

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/adjust"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/plan"
)

// voice tells Pods their news, as an event and in a condition: once for each change of the reason, and never in the way of placing
// others: that a Pod is placed, which it shows by itself, is told last, and slowly while many are. Of what a Pod is not told yet on a
// subject only the latest is.
type voice struct {
	client kubernetes.Interface
	log    *slog.Logger
	busy   func() bool // many Pods are being placed

	mu    sync.Mutex
	said  map[subject]said
	next  map[subject]news
	order [2][]subject // what is told first, and who is placed
	more  chan struct{}
}

// topic is what news is of: a condition of Pods.
type topic string

const (
	placement topic = kube.ConditionPlaced
	floor     topic = kube.ConditionFloorHeld
	aside     topic = "" // it is in an event alone
)

// subject is a topic of one Pod.
type subject struct {
	pod   types.UID
	topic topic
}

// said is what a Pod was told last.
type said struct {
	reason, code string
	text         string
	at           time.Time
}

// news is what a Pod is to be told.
type news struct {
	pod   *corev1.Pod
	word  queue.Word
	topic topic
	at    time.Time
	event string // its name, of its own: what is written twice is there once
}

func (n news) subject() subject { return subject{n.pod.UID, n.topic} }

// Bounds of telling.
const (
	tellEach     = 10 * time.Millisecond // at most so often: a hundred in a second
	tellBeside   = 10 * tellEach         // that a Pod is placed, while many are being placed
	tellAgain    = 10 * time.Second      // a Pod that waits, at the earliest: reasons may come and go
	tellAway     = time.Second           // the next one, where the API server did not take the last
	mostText     = 1024                  // bytes of an event, by the API
	mostSubjects = 100_000               // that are remembered
	component    = "weft"
	cutOff       = "..."
	nameSuffix   = 8 // random bytes of an event's name
)

func newVoice(client kubernetes.Interface, log *slog.Logger, busy func() bool) *voice {
	return &voice{client: client, log: log, busy: busy, said: map[subject]said{}, next: map[subject]news{}, more: make(chan struct{}, 1)}
}

// rank is where news stands in the order of telling.
func (n news) rank() int {
	if n.word.Reason == queue.Placed {
		return 1
	}
	return 0
}

// isNews says whether a Pod is to be told something: it was told something else, and not just now. What its condition says was told by
// whoever wrote that. The text does not count, but where the API refuses: those are its words.
func (v *voice) isNews(p *corev1.Pod, w queue.Word, of topic) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.news(p, w, of)
}

func (v *voice) news(p *corev1.Pod, w queue.Word, of topic) bool {
	about := subject{p.UID, of}
	last, known := v.said[about]
	if !known && of != aside {
		last, known = fromCondition(p, of)
	}
	same := last.reason == w.Reason && last.code == string(w.Code)
	if of == floor && w.Code == "" {
		same = last.reason == w.Reason // that nothing more is done about it is no news
	}
	if known && same && (w.Reason != queue.Refused || last.text == w.Text) {
		delete(v.next, about)
		return false
	}
	return !known || w.Reason != queue.Waiting || time.Since(last.at) >= tellAgain
}

// tell has a Pod told, if it is news.
func (v *voice) tell(p *corev1.Pod, w queue.Word, of topic) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.news(p, w, of) {
		return
	}
	v.put(news{p, w, of, time.Now(), eventName(p.Name)})
	select {
	case v.more <- struct{}{}:
	default:
	}
}

// put has news told in its turn, in place of what is still to be told on its subject.
func (v *voice) put(n news) {
	about := n.subject()
	if old, pending := v.next[about]; !pending || old.rank() != n.rank() {
		v.order[n.rank()] = append(v.order[n.rank()], about)
	}
	v.next[about] = n
}

// again has news told once more that did not come to its Pod, unless there is other news by now.
func (v *voice) again(n news) {
	v.mu.Lock()
	defer v.mu.Unlock()
	about := n.subject()
	if v.said[about].at.Equal(n.at) {
		delete(v.said, about)
	}
	if _, pending := v.next[about]; !pending {
		v.put(n)
	}
}

// fromCondition is what the condition of a Pod says it was told.
func fromCondition(p *corev1.Pod, of topic) (said, bool) {
	for _, c := range p.Status.Conditions {
		if string(c.Type) != string(of) {
			continue
		}
		switch {
		case of == floor:
			return said{reason: c.Reason, text: c.Message, at: c.LastTransitionTime.Time}, true
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
			rest := tellEach
			switch told := v.say(ctx, n); {
			case !told:
				v.again(n)
				rest = tellAway
			case n.rank() > 0 && v.busy():
				rest = tellBeside
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(rest):
			}
		}
	}
}

// take is the news that is to be told next: the oldest of the first rank that has any.
func (v *voice) take() (news, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for rank := range v.order {
		for len(v.order[rank]) > 0 {
			about := v.order[rank][0]
			v.order[rank] = v.order[rank][1:]
			n, ok := v.next[about]
			if !ok || n.rank() != rank {
				continue // told, or another news by now
			}
			delete(v.next, about)
			if len(v.said) >= mostSubjects {
				clear(v.said) // the worst of it is an event told twice
			}
			v.said[about] = said{n.word.Reason, string(n.word.Code), n.word.Text, n.at}
			return n, true
		}
		v.order[rank] = nil
	}
	return news{}, false
}

// say writes an event and the condition; false where the API server could not take one of them now. A server that is away for a moment
// would leave a condition that is not true any more, and nobody would write it anew.
func (v *voice) say(ctx context.Context, n news) (told bool) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if !n.word.Quiet {
		_, err := v.client.CoreV1().Events(n.pod.Namespace).Create(ctx, event(n), metav1.CreateOptions{})
		if !v.wrote(n.pod, "an event", err) {
			return false
		}
	}
	if n.topic == aside {
		return true
	}
	patch, err := condition(n.pod, conditionOf(n))
	if err == nil {
		_, err = v.client.CoreV1().Pods(n.pod.Namespace).Patch(ctx, n.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	return v.wrote(n.pod, "a condition", err)
}

// wrote says whether that is the end of it: it is written, or its Pod is gone or another one by now, or it is refused, which is logged.
func (v *voice) wrote(p *corev1.Pod, what string, err error) bool {
	var answer apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return true
	case !errors.As(err, &answer), apierrors.IsTooManyRequests(err), answer.Status().Code >= http.StatusInternalServerError:
		v.log.Debug(what+" is written later", "pod", p.Namespace+"/"+p.Name, "error", err)
		return false
	}
	v.log.Warn(what+" cannot be written", "pod", p.Namespace+"/"+p.Name, "error", err)
	return true
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
		ObjectMeta: metav1.ObjectMeta{Namespace: n.pod.Namespace, Name: n.event},
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
	c := corev1.PodCondition{Type: corev1.PodConditionType(n.topic), Status: corev1.ConditionFalse, Reason: string(n.word.Code), Message: n.word.Text,
		LastTransitionTime: metav1.NewTime(n.at)}
	if n.topic == floor {
		c.Reason = n.word.Reason
	}
	if n.word.Reason == queue.Placed || n.word.Reason == adjust.Held {
		c.Status, c.Reason = corev1.ConditionTrue, n.word.Reason
	}
	return c
}
