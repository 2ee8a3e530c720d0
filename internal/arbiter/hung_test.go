package arbiter

import "testing"

// TestHung silences one of two ranks that hold a GPU: both are told to drop, the silent one is overrun at once, and the
// waiter is granted as soon as the other rank releases, though it is of the lowest class and would never displace them.
func TestHung(t *testing.T) {
	a := New(1, Options{})
	for _, s := range []Session{{1, "gang", Guaranteed, 1, []int{0}, 0}, {2, "gang", Guaranteed, 1, []int{0}, 0}, {3, "low", BestEffort, 1, []int{0}, 0}} {
		if _, err := a.Join(0, s); err != nil {
			t.Fatal(err)
		}
	}
	var epoch uint64
	for _, d := range a.Request(0, 1) {
		epoch = d.Epoch
	}
	a.Request(1, 3)
	var kinds []Kind
	for _, d := range a.Hung(2, 1) {
		kinds = append(kinds, d.Kind)
		if d.Kind == Drop && d.Reason != Silent || d.Kind == Overrun && d.Session != 1 {
			t.Errorf("%+v", d)
		}
	}
	if len(kinds) != 3 || kinds[0] != Drop || kinds[1] != Drop || kinds[2] != Overrun {
		t.Fatalf("%v", kinds)
	}
	if ds := a.Hung(2, 1); len(ds) != 0 {
		t.Errorf("taken twice: %+v", ds)
	}
	ds := a.Released(3, 2, Release{Epoch: epoch})
	if len(ds) == 0 {
		ds = a.Tick(a.Next())
	}
	if len(ds) != 1 || ds[0].Kind != Grant || ds[0].Session != 3 {
		t.Fatalf("%+v", ds)
	}
	if u := a.Usage(a.now, "gang"); u.Overruns != 1 {
		t.Errorf("%+v", u)
	}
	if ds := a.Released(4, 1, Release{Epoch: epoch}); len(ds) != 0 {
		t.Errorf("a late release: %+v", ds)
	}
}

// TestSettled grants before the settle time is over, once everybody is known to be back.
func TestSettled(t *testing.T) {
	a := Restore(0, 1, Options{}, 7)
	if _, err := a.Join(1, Session{1, "a", Burstable, 1, []int{0}, 0}); err != nil {
		t.Fatal(err)
	}
	if ds := a.Request(2, 1); len(ds) != 0 {
		t.Fatalf("%+v", ds)
	}
	if ds := a.Settled(3); len(ds) != 1 || ds[0].Kind != Grant || ds[0].Epoch <= 7 {
		t.Fatalf("%+v", ds)
	}
}
