package adjust_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/adjust"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/kube/world"
)

// bed is a world whose agents tell what a test has them tell, and what looks at it.
type bed struct {
	*world.World
	t      *testing.T
	adjust *adjust.Adjuster
	book   *estimate.Book
}

const window = 20 * time.Second

func at(t *testing.T) *bed {
	t.Helper()
	return &bed{World: world.New(t), t: t, book: estimate.New(estimate.Options{}), adjust: adjust.New()}
}

// seen is what an agent tells of a worker: the share of its time that it waited, and its iterations.
type seen struct {
	lost       float64
	iterations int64
	beside     int
	used       float64
	peak       string
}

// passes lets a window pass, in which the agents of Pods tell.
func (b *bed) passes(told map[*corev1.Pod]seen) {
	b.t.Helper()
	b.Now = b.Now.Add(window)
	for p, s := range told {
		b.tell(p, s)
	}
}

func (b *bed) tell(p *corev1.Pod, s seen) {
	b.Tell(p, v1alpha1.Window{Seconds: window.Seconds(), Age: max(60, b.Now.Sub(p.Status.StartTime.Time).Seconds()), Wait: s.lost * window.Seconds(),
		Held: (1 - s.lost) * window.Seconds(), Used: s.used * window.Seconds(), Iterations: s.iterations, Utilisation: s.used, Beside: s.beside,
		Peak: resource.MustParse(cmp.Or(s.peak, "1Gi"))})
}

// look looks once.
func (b *bed) look() (adjust.Findings, *queue.Queue) {
	c := b.Cluster
	c.Seen = b.adjust.Seen(c.Pods, c.Policy, c.Now)
	q := queue.Build(&c, b.book)
	return b.adjust.Look(q, b.book, c.Policy), q
}

// pair is a besteffort Pod that can be moved on a GPU, and a guaranteed one that came to it.
func (b *bed) pair(low string) (best, guaranteed *corev1.Pod) {
	b.t.Helper()
	b.Node("node-1", 2, "24Gi")
	best = b.Place(b.Shared("ml/probe-1", 1, time.Hour, low, world.Owned("Job", "probe")), "node-1/0", "8Gi")
	guaranteed = b.Place(b.Shared("ml/bert-0", 1, time.Minute, "class=guaranteed floor=0.9 memory=8Gi", world.Owned("Job", "bert")), "node-1/0", "8Gi")
	return best, guaranteed
}

const movable = "class=besteffort floor=0.5 memory=8Gi migratable=true"

// words are what is told: "Pod: Reason text".
func words(f adjust.Findings) string {
	var lines []string
	for _, t := range f.Told {
		for _, p := range t.Pods {
			lines = append(lines, p.Name+": "+t.Word.Reason+" "+t.Word.Text)
		}
	}
	return strings.Join(lines, "\n")
}

func moves(f adjust.Findings) string {
	var lines []string
	for _, e := range f.Moves {
		lines = append(lines, e.Pod.Name+" "+e.Text)
	}
	return strings.Join(lines, "\n")
}

func TestHeld(t *testing.T) {
	b := at(t)
	best, guaranteed := b.pair(movable)
	b.passes(map[*corev1.Pod]seen{best: {lost: 0.3, beside: 1, used: 0.5}, guaranteed: {lost: 0.01, beside: 1, used: 0.5}})
	f, q := b.look()
	if got, want := words(f), "probe-1: Held 0.70, floor 0.50 beside ml/bert-0\nbert-0: Held 0.99, floor 0.90 beside ml/probe-1"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if len(f.Moves) > 0 {
		t.Errorf("moved: %s", moves(f))
	}
	if rate, ok := b.adjust.Rate(q.Jobs[q.State.Jobs[0].ID]); !ok || rate < 0.69 || rate > 0.71 {
		t.Errorf("rate %v", rate)
	}
	if f, _ := b.look(); words(f) != "" || f.News != 0 {
		t.Errorf("a window counts twice: %s", words(f))
	}
}

// TestMoves: a besteffort Pod that does not keep its floor beside a guaranteed one leaves, and is not moved again for a while.
func TestMoves(t *testing.T) {
	b := at(t)
	best, guaranteed := b.pair(movable)
	slow := map[*corev1.Pod]seen{best: {lost: 0.9, beside: 1, used: 0.1}, guaranteed: {beside: 1, used: 0.9}}
	var f adjust.Findings
	windows := 0
	for f.Moves == nil && windows < 5 {
		b.passes(slow)
		f, _ = b.look()
		windows++
	}
	if got, want := moves(f), "probe-1 from node-1/gpu0: ml/probe-1 below its floor"; got != want || windows > 3 {
		t.Fatalf("after %d windows: %q", windows, got)
	}
	if got, want := words(f), fmt.Sprintf("probe-1: BelowFloor 0.10 < floor 0.50 for %.0fs beside ml/bert-0; moving ml/probe-1", float64(windows)*window.Seconds()); !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	if f.News <= estimate.News {
		t.Error("a ban is no news")
	}
	b.passes(slow)
	if f, _ := b.look(); f.Moves != nil {
		t.Errorf("asked twice: %s", moves(f))
	}

	moved := b.Now
	b.remove(best)
	b.Now = b.Now.Add(5 * time.Second)
	next := b.Shared("ml/probe-2", 1, 0, movable, world.Owned("Job", "probe"))
	_, q := b.look()
	d := dispatch.Plan(&q.State)
	if len(d.Starts) != 1 || d.Starts[0].GPUs[0] != 1 {
		t.Fatalf("it is not placed apart from whom it could not be beside: %+v %+v", d.Starts, d.Waits)
	}
	when := b.adjust.Replaces(next)
	if age := moved.Sub(when); age != window {
		t.Errorf("it takes the place of one that was moved %v before it went", age)
	}
	if again := b.adjust.Replaces(next); !again.Equal(when) {
		t.Errorf("it takes two places: %v, %v", when, again)
	}
	next.Annotations[kube.AnnotationMoved] = when.Format(time.RFC3339)
	next.Annotations[kube.AnnotationGPU] = "node-1/gpu1"
	b.Place(next, "node-1/1", "8Gi")
	b.Place(b.Shared("ml/gnn-0", 1, 0, "class=guaranteed floor=0.9 memory=8Gi", world.Owned("Job", "gnn")), "node-1/1", "8Gi")
	b.passes(map[*corev1.Pod]seen{next: {lost: 0.9, beside: 1, used: 0.1}})
	f, _ = b.look()
	if got, want := words(f), "probe-2: Resumed on node-1/gpu1, paused 26s"; !strings.Contains(got, "probe-2: Resumed on node-1/gpu1, paused ") {
		t.Errorf("got %s, want %s", got, want)
	}
	for range 5 {
		b.passes(map[*corev1.Pod]seen{next: {lost: 0.9, beside: 1, used: 0.1}, guaranteed: {used: 0.9}})
		if f, _ := b.look(); f.Moves != nil {
			t.Fatalf("it is moved again within its cooldown: %s", moves(f))
		}
	}
	b.Now = b.Now.Add(11 * time.Minute)
	for f.Moves == nil && windows < 20 {
		b.passes(map[*corev1.Pod]seen{next: {lost: 0.9, beside: 1, used: 0.1}})
		f, _ = b.look()
		windows++
	}
	if f.Moves == nil {
		t.Error("it is never moved again")
	}
}

// remove has a Pod be gone with its claim.
func (b *bed) remove(p *corev1.Pod) {
	b.Pods = slices.DeleteFunc(slices.Clone(b.Pods), func(o *corev1.Pod) bool { return o.UID == p.UID })
	b.Claims = slices.DeleteFunc(slices.Clone(b.Claims), func(c *resourcev1.ResourceClaim) bool { o, ok := claim.Owner(c); return ok && o.UID == p.UID })
}

// TestNobodyLeaves: work is not thrown away for a floor, and a spent budget is said.
func TestNobodyLeaves(t *testing.T) {
	none := int32(0)
	for _, c := range []struct {
		name, low, text string
		policy          *v1alpha1.SharingPolicy
		change          func(*corev1.Pod)
	}{
		{name: "not migratable", low: "class=besteffort floor=0.5 memory=8Gi", text: "; none of them can be moved"},
		{name: "nobody makes it anew", low: movable, text: "; none of them can be moved", change: func(p *corev1.Pod) { p.OwnerReferences = nil }},
		{name: "budget", low: movable, text: "; the policy's 0 moves an hour are spent",
			policy: &v1alpha1.SharingPolicy{Spec: v1alpha1.SharingPolicySpec{Migration: v1alpha1.Migration{Moves: &none}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := at(t)
			b.Policy = c.policy
			best, guaranteed := b.pair(c.low)
			if c.change != nil {
				c.change(best)
			}
			said := ""
			for range 5 {
				b.passes(map[*corev1.Pod]seen{best: {lost: 0.9, beside: 1, used: 0.1}, guaranteed: {beside: 1, used: 0.9}})
				f, _ := b.look()
				if f.Moves != nil {
					t.Fatalf("moved: %s", moves(f))
				}
				said += words(f) + "\n"
			}
			if !strings.Contains(said, c.text) {
				t.Errorf("it heard\n%s", said)
			}
		})
	}
}

// TestNoBetterPlace: who is burstable is not evicted where no other GPU takes him; a besteffort Pod goes back to the queue. (Case C14.)
func TestNoBetterPlace(t *testing.T) {
	for class, want := range map[string]bool{"burstable": false, "besteffort": true} {
		b := at(t)
		b.Node("node-1", 1, "24Gi")
		both := map[*corev1.Pod]seen{}
		for _, name := range []string{"a", "b"} {
			p := b.Place(b.Shared("ml/"+name, 1, time.Hour, "floor=0.5 memory=8Gi migratable=true class="+class, world.Owned("Job", name)), "node-1/0", "8Gi")
			both[p] = seen{lost: 0.9, beside: 1, used: 0.1}
		}
		moved := 0
		for range 4 {
			b.passes(both)
			f, _ := b.look()
			moved += len(f.Moves)
		}
		if (moved > 0) != want || moved > 1 {
			t.Errorf("%s: %d are moved", class, moved)
		}
	}
}

// TestRefusedIsAskedAgain: a Pod that stays although it was asked to go, as its disruption budget has it, is asked again and counts no
// more against the moves.
func TestRefusedIsAskedAgain(t *testing.T) {
	b := at(t)
	best, guaranteed := b.pair(movable)
	asked := 0
	for range 12 {
		b.passes(map[*corev1.Pod]seen{best: {lost: 0.9, beside: 1, used: 0.1}, guaranteed: {beside: 1, used: 0.9}})
		f, _ := b.look()
		asked += len(f.Moves)
	}
	if asked < 2 || asked > 5 {
		t.Errorf("asked %d times in four minutes", asked)
	}
}

// TestOthersThanSeen: a rate that was seen beside others than the claims tell is not held against these.
func TestOthersThanSeen(t *testing.T) {
	b := at(t)
	best, guaranteed := b.pair(movable)
	for range 5 {
		b.passes(map[*corev1.Pod]seen{best: {lost: 0.9, beside: 2, used: 0.01}, guaranteed: {beside: 2, used: 0.1}})
		if f, _ := b.look(); f.Moves != nil {
			t.Fatalf("moved: %s", moves(f))
		}
	}
}

// TestLearns: a profile that says nothing is learned from the first job that names it, and the next ones share by it.
func TestLearns(t *testing.T) {
	b := at(t)
	b.Node("node-1", 1, "24Gi")
	b.Profiles = []*v1alpha1.WorkloadProfile{{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "bert"}}}
	p := b.Place(b.Shared("ml/first", 1, time.Hour, "floor=0.5 profile=bert", world.Owned("Job", "first")), "node-1/0", "24Gi")
	var found []adjust.Learned
	for range 10 {
		b.passes(map[*corev1.Pod]seen{p: {iterations: 100, used: 0.3, peak: "5Gi"}})
		f, _ := b.look()
		found = append(found, f.Profiles...)
	}
	if len(found) != 1 {
		t.Fatalf("told %d times: %+v", len(found), found)
	}
	l := found[0]
	if l.Profile.String() != "ml/bert" || l.Figures.Memory.Peak.String() != "5632Mi" || *l.Figures.UtilisationPercent != 30 || l.Iterations != 600 ||
		l.Figures.Rates[0].StepsPerSecond.Float(0) != 5 {
		t.Errorf("learned %+v, rates %v, peak %v", l, l.Figures.Rates, &l.Figures.Memory.Peak)
	}
	b.Profiles[0].Status = v1alpha1.WorkloadProfileStatus{Figures: l.Figures, Source: v1alpha1.SourceLearned}
	b.remove(p)
	for i := range 2 {
		b.Shared(fmt.Sprintf("ml/next-%d", i), 1, 0, "floor=0.5 profile=bert")
	}
	_, q := b.look()
	if d := dispatch.Plan(&q.State); len(d.Starts) != 2 {
		t.Errorf("they do not share: %+v", d.Waits)
	}
}

// TestResumes: who goes on with a book that another one began takes the windows that are in it for views, and not for news.
func TestResumes(t *testing.T) {
	b := at(t)
	best, guaranteed := b.pair(movable)
	told := map[*corev1.Pod]seen{best: {lost: 0.3, beside: 1, used: 0.5}, guaranteed: {lost: 0.01, beside: 1, used: 0.5}}
	b.passes(told)
	_, q := b.look()
	low, high := q.Jobs[q.State.Jobs[0].ID].Kind, q.Jobs[q.State.Jobs[1].ID].Kind
	if n := b.book.Seen(low, high); n != 1 {
		t.Fatalf("the pair was seen %d times", n)
	}
	known := b.adjust.Latest()
	if !known.Equal(b.Now) {
		t.Fatalf("windows are known until %v, want %v", known, b.Now)
	}
	for range 3 { // one that restarts in a loop
		b.adjust = adjust.New()
		b.adjust.Resume(known)
		f, q := b.look()
		if got := words(f); !strings.Contains(got, "probe-1: Held 0.70") {
			t.Errorf("it tells %q", got)
		}
		if rate, ok := b.adjust.Rate(q.Jobs[q.State.Jobs[0].ID]); !ok || rate < 0.69 || rate > 0.71 {
			t.Errorf("rate %v", rate)
		}
		if n := b.book.Seen(low, high); n != 1 {
			t.Fatalf("a window counts again: the pair was seen %d times", n)
		}
	}
	b.passes(told)
	b.look()
	if n := b.book.Seen(low, high); n != 2 {
		t.Errorf("after the next window the pair was seen %d times", n)
	}
}
