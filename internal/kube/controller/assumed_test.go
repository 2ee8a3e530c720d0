package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/plan"
)

// server is an API server with a log: what a watch shows is what there was after a part of it.
type server struct {
	now    map[string]*resourcev1.ResourceClaim
	states []map[string]*resourcev1.ResourceClaim // after each write
	next   int
}

func (s *server) write(name string, c *resourcev1.ResourceClaim) {
	if c == nil {
		delete(s.now, name)
	} else {
		s.now[name] = c
	}
	state := map[string]*resourcev1.ResourceClaim{}
	for k, v := range s.now {
		state[k] = v
	}
	s.states = append(s.states, state)
}

func (s *server) fresh(name string) *resourcev1.ResourceClaim {
	s.next++
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ml", UID: types.UID(strconv.Itoa(s.next)),
		ResourceVersion: strconv.Itoa(s.next)}}
}

// TestAssumedClaims: however far the watch is behind, what this controller wrote counts and what it deleted does not; what others did counts
// once it is shown; and in the end all is as shown.
func TestAssumedClaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &server{now: map[string]*resourcev1.ResourceClaim{}}
		s.write("", nil)
		a, shown, now := newAssumed(), 0, time.Unix(1e9, 0)
		mine := map[string]types.UID{} // written by us, and not deleted by others
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Second)
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			switch there := s.now[name]; rapid.IntRange(0, 5).Draw(t, "what") {
			case 0: // we create it
				if there == nil {
					c := s.fresh(name)
					s.write(name, c)
					a.created(c, now)
					mine[name] = c.UID
				}
			case 1: // we delete it
				if there != nil {
					s.write(name, nil)
					a.deleted(there, now)
					delete(mine, name)
				}
			case 2: // another deletes it
				if there != nil {
					s.write(name, nil)
					delete(mine, name)
				}
			case 3: // the scheduler allocates it
				if there != nil {
					c := there.DeepCopy()
					s.next++
					c.ResourceVersion = strconv.Itoa(s.next)
					s.write(name, c)
				}
			default:
				shown = rapid.IntRange(shown, len(s.states)-1).Draw(t, "shown")
			}
			var seen []*resourcev1.ResourceClaim
			for _, c := range s.states[shown] {
				seen = append(seen, c)
			}
			view := map[string]types.UID{}
			for _, c := range a.overClaims(seen, now) {
				if _, twice := view[c.Name]; twice {
					t.Fatalf("%s is there twice", c.Name)
				}
				view[c.Name] = c.UID
			}
			for name, uid := range mine {
				if view[name] != uid {
					t.Fatalf("we wrote %s as %s, and see %q", name, uid, view[name])
				}
			}
			for name, uid := range view {
				if _, gone := a.gone[uid]; gone {
					t.Fatalf("we deleted %s, and see it", name)
				}
			}
		}
		now = now.Add(2 * longestLag)
		last := len(s.states) - 1
		for range 2 { // what is not shown any more is forgotten
			var seen []*resourcev1.ResourceClaim
			for _, c := range s.states[last] {
				seen = append(seen, c)
			}
			view := a.overClaims(seen, now)
			if len(view) != len(s.now) {
				t.Fatalf("in the end there are %d claims, and we see %d", len(s.now), len(view))
			}
		}
		if len(a.gone)+len(a.claims) > 0 {
			t.Fatalf("%d deletions and %d claims are remembered for ever", len(a.gone), len(a.claims))
		}
	})
}

func TestAssumedPods(t *testing.T) {
	a := newAssumed()
	pod := func(v int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", ResourceVersion: strconv.Itoa(v)}}
	}
	a.patched(pod(99))
	for _, c := range []struct{ seen, want int }{{7, 99}, {98, 99}, {99, 99}, {100, 100}, {98, 98}} { // once shown it is as shown
		if got := a.overPods([]*corev1.Pod{pod(c.seen)}); len(got) != 1 || got[0].ResourceVersion != strconv.Itoa(c.want) {
			t.Errorf("shown %d: %s, want %d", c.seen, got[0].ResourceVersion, c.want)
		}
	}
	a.patched(pod(200))
	a.hold([]*corev1.Pod{pod(1)}, "x", time.Now())
	if got := a.overPods(nil); len(got) != 0 || len(a.pods) != 0 || len(a.holds) != 0 {
		t.Errorf("a Pod that is gone is remembered: %v", got)
	}
}

// TestHolds: each failure doubles the time to the next try, up to a limit; success ends it.
func TestHolds(t *testing.T) {
	a, now := newAssumed(), time.Unix(1e9, 0)
	p := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "u"}}}
	for _, seconds := range []float64{1, 2, 4, 8, 16, 32, 64, 120, 120, 120, 120, 120} {
		a.hold(p, "no", now)
		texts, next := a.held(now)
		if texts["u"] != "no" || next.Sub(now).Seconds() != seconds {
			t.Errorf("held for %v, want %v s", next.Sub(now), seconds)
		}
		if texts, next := a.held(next); len(texts) != 0 || !next.IsZero() {
			t.Error("it is held when its time is over")
		}
	}
	a.free(p)
	a.hold(p, "no", now)
	if _, next := a.held(now); next.Sub(now) != time.Second {
		t.Error("a success does not end the past")
	}
}

// TestIntend: of one Pod one thing is written at a time, and what is intended counts until it is done or given up.
func TestIntend(t *testing.T) {
	a, now := newAssumed(), time.Unix(1e9, 0)
	p := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "u"}}}
	c := []*resourcev1.ResourceClaim{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}}
	if !a.intend(p, c, now) || a.intend(p, c, now) {
		t.Fatal("two tasks for one Pod")
	}
	if n := len(a.overClaims(nil, now)); n != 2 {
		t.Errorf("%d claims are intended", n)
	}
	written := c[0].DeepCopy()
	written.ResourceVersion, written.UID = "5", "x"
	a.created(written, now)
	a.finish(p, c)
	if got := a.overClaims(nil, now); len(got) != 1 || got[0].UID != "x" {
		t.Errorf("%v is left", got)
	}
	if !a.intend(p, nil, now) {
		t.Error("a task that is done keeps others out")
	}
}

// TestConfine: to each alternative of an affinity the node is added, and nothing of it is changed: else the API refuses it.
func TestConfine(t *testing.T) {
	in := func(key string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	affinity := func(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
		required := &corev1.NodeSelector{NodeSelectorTerms: terms}
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
	}
	here := in("metadata.name", "n1")
	term := func(f []corev1.NodeSelectorRequirement, e ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: f, MatchExpressions: e}
	}
	spread := &corev1.PodAntiAffinity{}
	for name, c := range map[string]struct{ in, want *corev1.Affinity }{
		"none": {nil, affinity(term([]corev1.NodeSelectorRequirement{here}))},
		"others": {&corev1.Affinity{PodAntiAffinity: spread},
			&corev1.Affinity{NodeAffinity: affinity(term([]corev1.NodeSelectorRequirement{here})).NodeAffinity, PodAntiAffinity: spread}},
		"two alternatives": {affinity(term(nil, in("zone", "a")), term(nil, in("zone", "b"))),
			affinity(term([]corev1.NodeSelectorRequirement{here}, in("zone", "a")), term([]corev1.NodeSelectorRequirement{here}, in("zone", "b")))},
		"a field already": {affinity(term([]corev1.NodeSelectorRequirement{in("metadata.name", "n1")})),
			affinity(term([]corev1.NodeSelectorRequirement{in("metadata.name", "n1"), here}))},
	} {
		before := c.in.DeepCopy()
		if d := cmp.Diff(c.want, confine(c.in, "n1")); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if d := cmp.Diff(before, c.in); d != "" {
			t.Errorf("%s: what was given is changed: %s", name, d)
		}
	}
}

func TestReleaseNamesWhatItChanges(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"},
		Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "first"}, {Name: kube.Gate}}}}
	raw, err := release(p, "n1", map[string]string{kube.AnnotationGPU: "n1/gpu0"})
	if err != nil {
		t.Fatal(err)
	}
	var patch []operation
	if err := json.Unmarshal(raw, &patch); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range patch {
		got = append(got, fmt.Sprintf("%s %s", o.Op, o.Path))
	}
	want := []string{"test /metadata/uid", "test /spec/schedulingGates", "replace /spec/schedulingGates", "add /spec/affinity",
		"add /metadata/annotations"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	p.Spec.SchedulingGates = p.Spec.SchedulingGates[:1]
	if _, err := release(p, "n1", nil); err == nil {
		t.Error("a Pod without the gate is released")
	}
	for in, want := range map[string]string{"weft.dev/gpu": "weft.dev~1gpu", "a~b": "a~0b", "~/": "~0~1"} {
		if got := escaped(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

// TestToldOnce: a Pod hears of a reason once, also from the next controller, and of the latest only.
func TestToldOnce(t *testing.T) {
	v := newVoice(nil, nil, nil)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	word := func(reason string, code string) queue.Word {
		return queue.Word{Reason: reason, Code: codeOf(code), Text: reason + code}
	}
	heard := func() string {
		n, ok := v.take()
		if !ok {
			return ""
		}
		return n.word.Text
	}
	v.tell(p, word(queue.Waiting, "MemoryReserved"), placement)
	v.tell(p, word(queue.Waiting, "FloorSelf"), placement)
	if got := heard() + "," + heard(); got != "WaitingFloorSelf," {
		t.Errorf("it heard %q", got)
	}
	v.tell(p, word(queue.Waiting, "FloorSelf"), placement)
	v.tell(p, word(queue.Waiting, "Gang"), placement) // reasons that come and go are not told again and again
	if got := heard(); got != "" {
		t.Errorf("it heard %q", got)
	}
	v.tell(p, word(queue.Placed, ""), placement)
	if got := heard(); got != "Placed" {
		t.Errorf("it heard %q", got)
	}
	for _, c := range []corev1.PodCondition{{Status: "False", Reason: "FloorSelf"}, {Status: "False", Reason: "TooLarge"}, {Status: "True",
		Reason: "Placed"},
		{Status: "False", Reason: "Refused", Message: "quota"}} {
		c.Type = kube.ConditionPlaced
		q := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(c.Reason)}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{c}}}
		same := queue.Word{Reason: queue.Waiting, Code: codeOf(c.Reason), Text: c.Message}
		switch c.Reason {
		case "Placed":
			same.Reason, same.Code = queue.Placed, ""
		case "TooLarge":
			same.Reason = queue.CannotFit
		case "Refused":
			same.Reason = queue.Refused
		}
		v.tell(q, same, placement)
		if got := heard(); got != "" {
			t.Errorf("condition %s: it heard again %q", c.Reason, got)
		}
	}
}

// TestPlacedIsToldLast: why others wait is told before who is placed.
func TestPlacedIsToldLast(t *testing.T) {
	v := newVoice(nil, nil, nil)
	tell := func(uid, reason string) {
		v.tell(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}, queue.Word{Reason: reason, Text: uid + " " + reason}, placement)
	}
	tell("a", queue.Placed)
	tell("b", queue.Placed)
	tell("c", queue.Waiting)
	tell("d", queue.Refused)
	tell("d", queue.Placed) // meanwhile
	tell("b", queue.Refused)
	var heard []string
	for n, ok := v.take(); ok; n, ok = v.take() {
		heard = append(heard, n.word.Text)
	}
	if d := cmp.Diff([]string{"c Waiting", "b Refused", "a Placed", "d Placed"}, heard); d != "" {
		t.Error(d)
	}
}

// TestToldAgain: what did not come to a Pod is told again, also when the loop says it anew meanwhile, unless there is other news by then.
func TestToldAgain(t *testing.T) {
	v := newVoice(nil, nil, nil)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	tell := func(reason string) { v.tell(p, queue.Word{Reason: reason, Text: reason}, floor) }
	take := func(want string) news {
		t.Helper()
		n, _ := v.take()
		if n.word.Text != want {
			t.Errorf("it hears %q, want %q", n.word.Text, want)
		}
		return n
	}
	tell("BelowFloor")
	v.again(take("BelowFloor"))
	tell("BelowFloor")
	lost := take("BelowFloor")
	take("")
	tell("Held")
	v.again(lost)
	take("Held")
	take("")
	tell("Held")
	take("")
}

func codeOf(text string) plan.Code { return plan.Code(text) }
