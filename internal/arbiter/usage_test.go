package arbiter

import (
	"testing"
	"time"

	"weft.dev/weft/internal/unit"
)

// TestUsageOfHolder asks what a job had that holds its token while nothing happens.
func TestUsageOfHolder(t *testing.T) {
	a := New(1, Options{})
	if _, err := a.Join(0, Session{ID: 1, Job: "alone", Weight: 1, GPUs: []int{0}}); err != nil {
		t.Fatal(err)
	}
	ds := a.Request(0, 1)
	if len(ds) != 1 || ds[0].Kind != Grant {
		t.Fatalf("%+v", ds)
	}
	hour := unit.Time(0).Add(time.Hour)
	for range 2 {
		if u := a.Usage(hour, "alone"); u.Held != time.Hour {
			t.Errorf("held for %v after an hour", u.Held)
		}
	}
	a.Released(hour, 1, Release{Epoch: ds[0].Epoch})
	if u := a.Usage(hour.Add(time.Hour), "alone"); u.Held != time.Hour {
		t.Errorf("held for %v, an hour after the release", u.Held)
	}
}
