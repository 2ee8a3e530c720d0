package ledger

import (
	"encoding/csv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"weft.dev/weft/internal/shared"
	"weft.dev/weft/internal/unit"
)

const (
	block      = MinChunk             // a curve rises and falls by such
	bucket     = 4 * time.Millisecond // of a curve, at its highest within it
	persistent = 1 * unit.GiB
	steps      = 100
)

// measured is one training step of a recorded ResNet-50 from its trough on: the blocks in use in each bucket.
func measured(t *testing.T, name string) []int {
	t.Helper()
	f, err := os.Open(shared.Data(t, "memory_curves/"+name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var curve []int
	start, last := -1.0, 0
	for _, row := range rows {
		if row[2] != "ProfilerStep#6" && row[2] != "ProfilerStep#7" {
			continue
		}
		ms, err1 := strconv.ParseFloat(row[0], 64)
		bytes, err2 := strconv.ParseInt(row[1], 10, 64)
		if err1 != nil || err2 != nil {
			t.Fatal(row)
		}
		if start < 0 {
			start = ms
		}
		for at := int((ms - start) / bucket.Seconds() / 1e3); len(curve) <= at; {
			curve = append(curve, last)
		}
		if row[2] == "ProfilerStep#7" {
			break
		}
		last = int((unit.Bytes(max(0, bytes)) + block - 1) / block)
		curve[len(curve)-1] = max(curve[len(curve)-1], last)
	}
	trough := slices.Index(curve, slices.Min(curve))
	return append(slices.Clone(curve[trough:]), curve[:trough]...)
}

func highest(curve []int) (peak unit.Bytes) {
	for _, blocks := range curve {
		peak = max(peak, unit.Bytes(blocks)*block)
	}
	return peak
}

// trainer is a job that follows a curve again and again in virtual time.
type trainer struct {
	id     AccountID
	rng    *rand.Rand
	next   unit.Time // it takes the bucket at
	at     int       // buckets taken
	blocks int
	waits  bool
	end    unit.Time
}

// train runs jobs on the curve until all ended, under a ledger with a pool of some bytes. Then each returns blocks as they
// fall, or all at its boundary alone.
func train(t *testing.T, curve []int, ids []AccountID, pool unit.Bytes, returns bool) (end unit.Time, stalled time.Duration) {
	t.Helper()
	l := New(unit.Bytes(len(ids))*persistent+pool, block)
	list := make([]*trainer, len(ids))
	for i, id := range ids {
		list[i] = &trainer{id: id, rng: rand.New(rand.NewPCG(uint64(id), 0))}
		if got := l.Open(0, list[i].id, Terms{Reserved: persistent, Peak: highest(curve), Cooperates: true}); got.Outcome != Granted {
			t.Fatalf("open: %+v", got)
		}
		l.Alloc(0, list[i].id, Handle{}, persistent, Device)
	}
	for j := soonest(list); j != nil; j = soonest(list) {
		now := j.next
		if j.at == steps*len(curve) {
			j.end, end = now, max(end, now)
			stalled += l.Stall(now, j.id)
			l.Close(now, j.id)
		} else {
			j.step(t, l, curve, returns)
		}
		for _, d := range l.Ready() {
			j := list[slices.Index(ids, d.Account)]
			j.waits, j.next = false, now
		}
	}
	for _, j := range list {
		if j.end == 0 {
			t.Fatalf("job %d never ends: %+v", j.id, l.State())
		}
	}
	return end, stalled
}

// soonest is the job that goes on first: of those at one instant, the first.
func soonest(list []*trainer) (first *trainer) {
	for _, j := range list {
		if !j.waits && j.end == 0 && (first == nil || j.next < first.next) {
			first = j
		}
	}
	return first
}

// step takes a bucket of the curve, or waits for the memory it takes.
func (j *trainer) step(t *testing.T, l *Ledger, curve []int, returns bool) {
	t.Helper()
	want := curve[j.at%len(curve)]
	if lowered := unit.Bytes(j.blocks-want) * block; lowered > 0 {
		for ; j.blocks > want; j.blocks-- {
			l.Free(j.next, j.id, Handle{1, uint64(j.blocks - 1)})
		}
		if returns {
			l.Return(j.next, j.id, lowered)
		}
	}
	if j.at%len(curve) == 0 {
		l.Yield(j.next, j.id)
	}
	if want > j.blocks {
		got := l.Reserve(j.next, j.id, Request{1, uint64(j.at + 1)}, unit.Bytes(want-j.blocks)*block)
		if j.waits = got.Outcome == Waits; j.waits {
			return
		}
	}
	for ; j.blocks < want; j.blocks++ {
		if got := l.Alloc(j.next, j.id, Handle{1, uint64(j.blocks)}, block, Device); got.Outcome != Granted {
			t.Fatalf("alloc: %+v", got)
		}
	}
	j.at++
	j.next = j.next.Add(bucket*9/10 + time.Duration(j.rng.Int64N(int64(bucket/5)))) // within 10 %
}

// collide is the bucket at which the second of two jobs in step fails without a ledger, or -1 if their peaks fit.
func collide(curve []int, pool unit.Bytes) int {
	return slices.IndexFunc(curve, func(blocks int) bool { return 2*unit.Bytes(blocks)*block > pool })
}

// TestHandoverPays: jobs whose peaks do not fit together all progress, sooner than one after the other, where plain sharing
// kills one within its first step, to be run again. Memory alone is modelled: that jobs also slow each other's kernels is
// left out on all sides.
func TestHandoverPays(t *testing.T) {
	for _, name := range []string{"kineto_resnet50_w0_a.csv", "kineto_resnet50_w4_a.csv"} {
		curve := measured(t, name)
		peak := highest(curve)
		for _, ids := range [][]AccountID{{1, 2}, {1, 2, 3}} {
			var serial unit.Time
			for i := range ids {
				end, _ := train(t, curve, ids[i:i+1], peak, false)
				serial += end
			}
			t.Logf("%s: peak %.0f MiB, %d steps of %v, %d jobs: in turn %.1f s", name, peak.MiB(), steps, time.Duration(len(curve))*bucket,
				len(ids), serial.Seconds())
			for _, percent := range []unit.Bytes{100, 150} {
				pool := peak * percent / 100
				failure := collide(curve, pool)
				atBoundary, _ := train(t, curve, ids, pool, false)
				asFreed, stalled := train(t, curve, ids, pool, true)
				t.Logf("  pool %d %% of a peak: handed over at the boundary %.1f s, as freed %.1f s (a job stalls %.0f %%); plain: the second fails after %v",
					percent, atBoundary.Seconds(), asFreed.Seconds(), 100*stalled.Seconds()/asFreed.Seconds()/float64(len(ids)),
					time.Duration(failure)*bucket)
				if failure < 0 || asFreed >= serial*9/10 || atBoundary > serial {
					t.Errorf("%d jobs, pool %d %%: %v, %v against %v", len(ids), percent, atBoundary, asFreed, serial)
				}
			}
			if end, stalled := train(t, curve, ids, unit.Bytes(len(ids))*peak, false); end >= serial || stalled != 0 {
				t.Errorf("%d that fit take %v, stall %v", len(ids), end, stalled)
			}
		}
	}
}
