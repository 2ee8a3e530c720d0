package local

import (
	"testing"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/estimate"
)

// TestRepairWaitsForArrivals: a GPU is not relieved of anybody while somebody is on the way to it, however bad things look there.
func TestRepairWaitsForArrivals(t *testing.T) {
	b := open(t, 3)
	var ids []box.ID
	for range 3 {
		id := b.submit("sleep 60")
		b.until(id, "running", running)
		ids = append(ids, id)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	first, second, third := b.jobs[ids[0]], b.jobs[ids[1]], b.jobs[ids[2]]
	was := second.On
	second.On, first.Windows = first.On, 1
	defer func() { second.On, third.live.target = was, nil }()
	for range 20 {
		for _, j := range []*job{first, second, third} {
			b.book.Observe(j.kind(), []estimate.Kind{first.kind(), second.kind()}, 0.05, 0.01)
		}
	}
	third.live.target = first.On
	b.repair(first.On[0], time.Now())
	if bans := b.book.Bans(); len(bans) > 0 {
		t.Errorf("kept apart while one is on its way: %v", bans)
	}
	third.live.target = nil
	b.repair(first.On[0], time.Now())
	if bans := b.book.Bans(); len(bans) != 1 {
		t.Errorf("kept apart once all are there: %v, want one pair", bans)
	}
}
