package estimate

import (
	"fmt"
	"testing"
	"time"

	"weft.dev/weft/internal/cluster"
)

// doubtful is a book of kinds that may hold a floor of 0.7 beside each other but are not safe to, and their jobs.
func doubtful(n int) (*Book, []Count) {
	b := New(Options{})
	var jobs []Count
	for i := range n {
		key := fmt.Sprint("k", i)
		b.Tell(key, Alone{Rate: 10, Busy: 0.5, Source: Declared})
		jobs = append(jobs, Count{Kind{key, cluster.Burstable}, 2 + i, 0.75})
	}
	return b, jobs
}

func TestPilotsAreFew(t *testing.T) {
	b, jobs := doubtful(6)
	before := added(b, jobs[5].Kind, jobs[4].Kind)
	if !b.Review(epoch, jobs) || len(b.pilots) != maxPilots {
		t.Fatalf("%d pilots", len(b.pilots))
	}
	if !b.Piloted(jobs[4].Kind, jobs[5].Kind) || b.Piloted(jobs[0].Kind, jobs[1].Kind) {
		t.Error("not the pairs with most jobs are tried out")
	}
	if after := added(b, jobs[5].Kind, jobs[4].Kind); after >= before || 1/(1+after) < 0.75 {
		t.Errorf("the pair adds %g, before %g", after, before)
	}
	if b.Review(epoch.Add(time.Minute), jobs) {
		t.Error("pilots change although nothing has")
	}
}

func TestPilotEnds(t *testing.T) {
	for _, c := range []struct {
		name  string
		rate  float64
		seen  int
		after time.Duration
		jobs  bool
		ends  bool
	}{
		{"at once", 0, 0, time.Second, true, false},
		{"its time is over", 0, 0, pilotTime, true, true},
		{"the clock stepped back", 0, 0, -time.Hour, true, true},
		{"nobody is left", 0, 0, time.Minute, false, true},
		{"it is safe", 0.95, 20, time.Minute, true, true},
		{"it is hopeless", 0.5, 5, time.Minute, true, true},
		{"it stays in doubt", 0.75, pilotObservations, time.Minute, true, true},
	} {
		b, jobs := doubtful(2)
		i, l := jobs[0].Kind, jobs[1].Kind
		jobs[0].Jobs, jobs[1].Jobs = 1, 1 // so that twins are no pair
		b.Review(epoch, jobs)
		if !b.Piloted(i, l) {
			t.Fatalf("%s: no pilot", c.name)
		}
		for range c.seen {
			b.Observe(i, []Kind{l}, c.rate, 0.05)
			b.Observe(l, []Kind{i}, c.rate, 0.05)
		}
		if !c.jobs {
			jobs = jobs[:1]
		}
		changed := b.Review(epoch.Add(c.after), jobs)
		if b.Piloted(i, l) == c.ends || changed != c.ends {
			t.Errorf("%s: piloted %v, changed %v", c.name, b.Piloted(i, l), changed)
		}
	}
}

// TestNoPilotOf: pairs that may not share, are banned, are safe, or ask for too much are not tried out.
func TestNoPilotOf(t *testing.T) {
	b, jobs := doubtful(2)
	i, l := jobs[0].Kind, jobs[1].Kind
	guaranteed := func(k Kind) Kind { return Kind{k.Key, cluster.Guaranteed} }
	for name, jobs := range map[string][]Count{
		"guaranteed and burstable": {{guaranteed(i), 1, 0.75}, {l, 1, 0.75}},
		"two guaranteed":           {{guaranteed(i), 1, 0.75}, {guaranteed(l), 1, 0.75}},
		"safe":                     {{i, 1, 0.1}, {l, 1, 0.1}},
		"a floor of 1":             {{i, 1, 1}, {l, 1, 0.1}},
		"a floor of nothing":       {{i, 1, 0}, {l, 1, 0.75}},
		"one job":                  {{i, 1, 0.75}},
		"no jobs":                  {{i, 0, 0.75}, {l, -1, 0.75}},
		"no key":                   {{Kind{}, 5, 0.75}, {l, 1, 0.75}},
	} {
		if b.Review(epoch, jobs); len(b.pilots) > 0 {
			t.Errorf("%s: %v", name, b.trials())
			b, _ = doubtful(2)
		}
	}
	b.Ban(i, l, epoch.Add(time.Hour))
	jobs[0].Jobs, jobs[1].Jobs = 1, 1
	if b.Review(epoch, jobs); len(b.pilots) > 0 {
		t.Error("a banned pair is tried out")
	}
}

// TestReviewSaysWhatWasLearned: what becomes known of a job alone is worth planning anew, once.
func TestReviewSaysWhatWasLearned(t *testing.T) {
	b := New(Options{})
	jobs := []Count{{Kind{"a", cluster.Burstable}, 1, 0.9}, {Kind{"b", cluster.Burstable}, 1, 0.9}}
	b.Review(epoch, jobs)
	for _, c := range []struct {
		what  string
		do    func()
		wants bool
	}{
		{"nothing", func() {}, false},
		{"a is light", func() { b.Learn("a", alone(20, 0.2)) }, true},
		{"nothing again", func() {}, false},
		{"the same again", func() { b.Learn("a", alone(20, 0.2)) }, true}, // more windows, a narrower bound
		{"it is declared, too", func() { b.Tell("a", Alone{Busy: 0.9, Source: Declared}) }, false},
	} {
		c.do()
		if got := b.Review(epoch, jobs); got != c.wants {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// BenchmarkChange is what one learned window costs among 200 kinds.
func BenchmarkChange(b *testing.B) {
	book := New(Options{GPU: "v100", Predictor: predictor(b)})
	var kinds []Kind
	for i := range 200 {
		k := Kind{fmt.Sprint("k", i), cluster.Class(i % 3)}
		kinds = append(kinds, k)
		book.Tell(k.Key, Alone{Rate: 10, Busy: 0.5, Source: Declared})
		book.Config(k)
	}
	book.Safe()
	for n := 0; b.Loop(); n++ {
		book.Tell(kinds[n%200].Key, Alone{Rate: 10, Busy: 0.3 + 0.001*float64(n%400), Source: Declared})
		book.Safe()
	}
}

// BenchmarkReview is a look for pilots among 190 kinds.
func BenchmarkReview(b *testing.B) {
	book, jobs := doubtful(190)
	book.Review(epoch, jobs)
	for b.Loop() {
		book.Review(epoch, jobs)
	}
}
