package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/kube"
)

// TestOneOnItsWay: never are two Pods on the way to one GPU, whoever waits goes as soon as it can, and in the end all went.
func TestOneOnItsWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, all := newLanes(), []string{"a", "b", "c"}
		gpus := map[types.UID][]string{}
		var onWay []types.UID
		var waiting []*departure
		look := func() {
			waiting = slices.DeleteFunc(waiting, func(d *departure) bool {
				select {
				case <-d.ready:
					onWay = append(onWay, d.pod)
					return true
				default:
					return false
				}
			})
			taken := map[string]types.UID{}
			for _, uid := range onWay {
				for _, g := range gpus[uid] {
					if other, is := taken[g]; is && other != uid {
						t.Fatalf("%s and %s are on the way to %s", other, uid, g)
					}
					taken[g] = uid
				}
			}
			for _, d := range waiting {
				if !slices.ContainsFunc(gpus[d.pod], func(g string) bool { return taken[g] != "" }) {
					t.Fatalf("%s waits for nobody", d.pod)
				}
			}
		}
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(onWay) > 0 && rapid.Bool().Draw(t, "leaves") {
				at := rapid.IntRange(0, len(onWay)-1).Draw(t, "who")
				l.leave(onWay[at])
				onWay = slices.Delete(onWay, at, at+1)
			} else {
				uid := types.UID(fmt.Sprint("p", i))
				gpus[uid] = rapid.SliceOfN(rapid.SampledFrom(all), 1, 4).Draw(t, "gpus") // one twice: two workers of a Pod on it
				d, free := l.enter(uid, traveller{gpus: gpus[uid]})
				waiting = append(waiting, d)
				if was := len(onWay); free {
					if look(); len(onWay) != was+1 {
						t.Fatalf("%s is said to be free, and is not on its way", uid)
					}
				}
			}
			look()
		}
		for len(onWay) > 0 {
			l.leave(onWay[0])
			onWay = onWay[1:]
			look()
		}
		if len(waiting)+len(l.on)+len(l.pods)+len(l.waiting) > 0 {
			t.Fatalf("left are %d waiting, %v", len(waiting), l)
		}
	})
}

// TestOneAtATime: of Pods that come together and share GPUs, the real scheduler has one for each GPU at a time, and finds a place for
// each at once.
func TestOneAtATime(t *testing.T) {
	s := at(t)
	s.node(2)
	s.node(2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, err := s.client.CoreV1().Pods(s.ns).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var pods []*corev1.Pod
	for i := range 16 {
		pods = append(pods, s.pod(fmt.Sprintf("p-%02d", i), 1, "memory=15Gi floor=0.2"))
	}
	s.controller(nil)
	onWay, bound, together := map[string]string{}, map[string]bool{}, map[string]int{}
	for end := time.After(patience); len(bound) < len(pods); {
		select {
		case <-end:
			t.Fatalf("%d of %d are bound", len(bound), len(pods))
		case e := <-w.ResultChan():
			p, ok := e.Object.(*corev1.Pod)
			if !ok {
				t.Fatalf("the watch says %v", e)
			}
			gpu := p.Annotations[kube.AnnotationGPU]
			switch {
			case p.Spec.NodeName != "":
				if bound[p.Name] = true; onWay[gpu] == p.Name {
					delete(onWay, gpu)
				}
			case travels(p):
				if other := onWay[gpu]; other != "" && other != p.Name {
					t.Errorf("%s goes to %s while %s is on its way there", p.Name, gpu, other)
				}
				if onWay[gpu] != p.Name {
					together[gpu]++
				}
				onWay[gpu] = p.Name
			}
		}
	}
	if len(together) != 4 {
		t.Errorf("the Pods are on other GPUs than thought: %v", together)
	}
	for _, e := range s.passedOver() {
		t.Error(e)
	}
}

// passedOver are the Pods that the scheduler found no place for, with its words.
func (s *site) passedOver() []string {
	s.t.Helper()
	list, err := s.client.CoreV1().Events(s.ns).List(s.context(), metav1.ListOptions{FieldSelector: "reason=FailedScheduling"})
	if err != nil {
		s.t.Fatal(err)
	}
	var texts []string
	for _, e := range list.Items {
		texts = append(texts, e.InvolvedObject.Name+": "+e.Message)
	}
	return texts
}

// TestLaneEnds: nobody waits for ever, and none longer than the controller acts.
func TestLaneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		l.enter("a", traveller{gpus: []string{"g"}})
		b, free := l.enter("b", traveller{gpus: []string{"g"}})
		if free {
			t.Fatal("two are on the way to one GPU")
		}
		began := time.Now()
		if err := l.wait(t.Context(), b); err != nil || time.Since(began) != longestLane {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		c, _ := l.enter("c", traveller{gpus: []string{"g"}})
		l.leave("a") // late: b is on its way now
		ended, end := context.WithCancel(t.Context())
		end()
		if err := l.wait(ended, c); !errors.Is(err, context.Canceled) {
			t.Errorf("it may go: %v", err)
		}
		l.leave("b")
		if err := l.wait(t.Context(), c); err != nil {
			t.Error(err)
		}
	})
}

// TestTravels goes through the life of a Pod.
func TestTravels(t *testing.T) {
	scheduled := func(status corev1.ConditionStatus, reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: status, Reason: reason}}
		}
	}
	now := metav1.Now()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	for _, step := range []struct {
		what           string
		change         func(*corev1.Pod)
		travels, there bool
	}{
		{"created", func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "weft.dev/placement"}, {Name: "other"}}
			scheduled(corev1.ConditionFalse, corev1.PodReasonSchedulingGated)(p)
		}, false, false},
		{"held back by others", func(p *corev1.Pod) { p.Spec.SchedulingGates = p.Spec.SchedulingGates[1:] }, false, true},
		{"released", func(p *corev1.Pod) { p.Spec.SchedulingGates = nil }, true, false},
		{"has no node", scheduled(corev1.ConditionFalse, corev1.PodReasonUnschedulable), false, true},
		{"is bound", func(p *corev1.Pod) { p.Spec.NodeName = "n"; scheduled(corev1.ConditionTrue, "")(p) }, false, true},
		{"ends", func(p *corev1.Pod) { p.DeletionTimestamp = &now }, false, true},
	} {
		step.change(p)
		if travels(p) != step.travels || arrived(p) != step.there {
			t.Errorf("%s: it travels: %v, it is there: %v", step.what, travels(p), arrived(p))
		}
	}
}
