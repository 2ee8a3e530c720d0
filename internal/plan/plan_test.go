package plan

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
)

func TestFoldRefuses(t *testing.T) {
	o := cluster.NewOverlay(cluster.Empty(3), 4)
	o.Add(0, 1)
	o.Add(1, 1)
	s := o.Snapshot() // revision 1: workers 0 and 1 on GPU 1
	place := func(w cluster.Worker, from, to cluster.GPU) Operation { return Operation{Placed, w, from, to} }
	for _, c := range []struct {
		what string
		plan Plan
		want string
	}{
		{"older revision", Plan{BasedOn: 0}, "based on revision 0, the state is at 1"},
		{"newer revision", Plan{BasedOn: 2}, "based on revision 2"},
		{"no such worker", Plan{1, []Operation{place(4, cluster.NoGPU, 0)}, nil}, "operation 0: no worker 4"},
		{"negative worker", Plan{1, []Operation{place(-1, cluster.NoGPU, 0)}, nil}, "no worker -1"},
		{"no such GPU", Plan{1, []Operation{place(2, cluster.NoGPU, 3)}, nil}, "no GPU 3"},
		{"to no GPU", Plan{1, []Operation{place(0, 1, cluster.NoGPU)}, nil}, "no GPU -1"},
		{"from no such GPU", Plan{1, []Operation{place(0, 7, 0)}, nil}, "worker 0 is on GPU 1, not 7"},
		{"elsewhere", Plan{1, []Operation{place(0, 2, 0)}, nil}, "worker 0 is on GPU 1, not 2"},
		{"already placed", Plan{1, []Operation{place(0, cluster.NoGPU, 0)}, nil}, "worker 0 is on GPU 1, not -1"},
		{"not placed", Plan{1, []Operation{place(2, 1, 0)}, nil}, "worker 2 is on GPU -1, not 1"},
		{"placed twice", Plan{1, []Operation{place(2, cluster.NoGPU, 0), place(2, cluster.NoGPU, 1)}, nil}, "operation 1: worker 2"},
		{"the last is wrong", Plan{1, []Operation{place(2, cluster.NoGPU, 0), place(0, 1, 2), place(0, 1, 2)}, nil}, "operation 2: worker 0"},
	} {
		t.Run(c.what, func(t *testing.T) {
			got, err := Fold(s, &c.plan, 4)
			if err == nil || got != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("folded to %v, error %v, want %q", got, err, c.want)
			}
			if !slices.Equal(s.Residents(1), []cluster.Worker{0, 1}) || len(s.Residents(0))+len(s.Residents(2)) > 0 || s.Revision() != 1 {
				t.Error("the snapshot changed")
			}
		})
	}
}

// TestFold: operations move workers one after the other, the result has the next revision, and the same plan does not
// apply to it again.
func TestFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const workers, gpus = 6, 4
		s, place := cluster.Empty(gpus), make([]cluster.GPU, workers)
		for w := range place {
			place[w] = cluster.NoGPU
		}
		for range rapid.IntRange(1, 4).Draw(t, "plans") {
			p := Plan{BasedOn: s.Revision()}
			for range rapid.IntRange(0, 8).Draw(t, "operations") {
				w := cluster.Worker(rapid.IntRange(0, workers-1).Draw(t, "worker"))
				to := cluster.GPU(rapid.IntRange(0, gpus-1).Draw(t, "GPU"))
				verb := Moved
				if place[w] == cluster.NoGPU {
					verb = Placed
				}
				p.Operations = append(p.Operations, Operation{verb, w, place[w], to})
				place[w] = to
			}
			next, err := Fold(s, &p, workers)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Operations) > 0 {
				if next.Revision() != s.Revision()+1 {
					t.Fatalf("revision %d follows %d", next.Revision(), s.Revision())
				}
				if _, err := Fold(next, &p, workers); err == nil {
					t.Fatal("a plan folded twice")
				}
			}
			s = next
			for w, g := range place {
				if g != cluster.NoGPU && !slices.Contains(s.Residents(g), cluster.Worker(w)) {
					t.Fatalf("worker %d is not on GPU %d", w, g)
				}
			}
		}
	})
}

func TestReasons(t *testing.T) {
	for _, c := range []struct {
		reason Reason
		want   string
	}{
		{Reason{}, "fits"},
		{Reason{FloorResident, 0.82, 0.9}, "FloorResident 0.820 < 0.900"},
		{Reason{FloorSelf, 0.8996, 0.9}, "FloorSelf 0.900 < 0.900"},
		{Reason{MemoryOverflow, 0.0625, 0.05}, "MemoryOverflow 0.062 > 0.050"},
		{Reason{MemoryReserved, 17 << 30, 16 << 30}, "MemoryReserved 18253611008 > 17179869184"},
		{Reason{MaxResidents, 5, 4}, "MaxResidents 5 > 4"},
		{Reason{TooLarge, 3, 2}, "TooLarge 3 > 2"},
		{Reason{Gang, 4, 2}, "Gang 4 > 2"},
		{Reason{Code: SameJob}, "SameJob"},
		{Reason{Code: ClassConflict}, "ClassConflict"},
		{Reason{Code: PairBanned}, "PairBanned"},
		{Reason{Code: Drained}, "Drained"},
		{Reason{Code: Native}, "Native"},
		{Reason{Code: NodeMismatch}, "NodeMismatch"},
		{Reason{Foreign, 3 << 30, 2 << 30}, "Foreign 3221225472 > 2147483648"},
		{Reason{FloorUnreachable, 0.97, 0.99}, "FloorUnreachable 0.970 < 0.990"},
		{Reason{Quota, 9, 8}, "Quota 9 > 8"},
	} {
		if got := c.reason.String(); got != c.want {
			t.Errorf("%#v reads %q, want %q", c.reason, got, c.want)
		}
		if c.reason.Refused() != (c.want != "fits") {
			t.Errorf("%#v: refused %t", c.reason, c.reason.Refused())
		}
	}
}
