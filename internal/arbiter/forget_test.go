package arbiter

import (
	"testing"
	"time"

	"weft.dev/weft/internal/unit"
)

// TestRejoiningGainsNothing lets one of two equal jobs leave and join again after each of its turns, as a process does
// that destroys its context and makes a new one.
func TestRejoiningGainsNothing(t *testing.T) {
	a := New(1, Options{})
	now := unit.Time(0)
	var holder SessionID
	var epoch uint64
	take := func(ds []Decision) {
		for _, d := range ds {
			if d.Kind == Grant {
				holder, epoch = d.Session, d.Epoch
			}
		}
	}
	join := func(id SessionID) {
		ds, err := a.Join(now, Session{ID: id, Job: JobID(rune('a' + id)), Class: Burstable, Weight: 1, GPUs: []int{0}})
		if err != nil {
			t.Fatal(err)
		}
		take(ds)
		take(a.Request(now, id))
	}
	join(1)
	join(2)
	for now < unit.Seconds(20) {
		now = now.Add(10 * time.Millisecond)
		take(a.Tick(now))
		was := holder
		holder = 0
		take(a.Released(now, was, Release{Epoch: epoch}))
		if was == 1 {
			take(a.Leave(now, 1))
			join(1)
		} else {
			take(a.Request(now, was))
		}
		if holder == 0 {
			t.Fatalf("nobody holds the token at %v", now)
		}
	}
	one, two := a.Usage(a.now, JobID('b')).Held, a.Usage(a.now, JobID('c')).Held
	if share := float64(one) / float64(one+two); share < 0.49 || share > 0.51 {
		t.Errorf("the job that leaves and joins had %.1f %%, of 50", 100*share)
	}
}

// TestForget ends a job that holds a token while its session is still there: the waiter runs at once.
func TestForget(t *testing.T) {
	a := New(1, Options{})
	for id := SessionID(1); id <= 2; id++ {
		if _, err := a.Join(0, Session{ID: id, Job: JobID(rune('a' + id)), Class: Class(id - 1), Weight: int(id), GPUs: []int{0}}); err != nil {
			t.Fatal(err)
		}
		a.Request(0, id)
	}
	ds := a.Forget(1, JobID('b'))
	if len(ds) != 1 || ds[0].Kind != Grant || ds[0].Session != 2 {
		t.Fatalf("%+v", ds)
	}
	if u := a.Usage(a.now, JobID('b')); u != (Usage{}) {
		t.Errorf("a forgotten job had %+v", u)
	}
	if _, err := a.Join(2, Session{ID: 1, Job: JobID('b'), Class: BestEffort, Weight: 3, GPUs: []int{0}}); err != nil {
		t.Errorf("a forgotten job comes back with other terms: %v", err)
	}
	a.Forget(3, "nobody")
}
