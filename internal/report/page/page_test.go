package page

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/unit"
)

func pageOf(t rapid.TB, s Study) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPageIsDeterministicAndSmall(t *testing.T) {
	s := generated(82247, 100)
	first := pageOf(t, s)
	if first != pageOf(t, s) {
		t.Error("two pages of one study differ")
	}
	if len(first) > 1<<20 {
		t.Errorf("82,247 jobs in three runs make %d bytes, want at most a megabyte", len(first))
	}
	if !strings.Contains(first, "busiest of 100 GPUs in use") {
		t.Error("the page does not say that it draws some GPUs only")
	}
	t.Logf("%d bytes", len(first))
}

func TestPageStaysSmallWithManyRuns(t *testing.T) {
	s := generated(3000, 40)
	for i := range 20 {
		r := s.Runs[i%3]
		r.Name = fmt.Sprintf("run %d", i)
		s.Runs = append(s.Runs, r)
	}
	if n := len(pageOf(t, s)); n > 1<<20 {
		t.Errorf("%d runs make %d bytes", len(s.Runs), n)
	}
}

func TestHostileTextIsEscaped(t *testing.T) {
	got := pageOf(t, hostile())
	for _, bad := range []string{"<script>alert", "<img src=x", `'><`} {
		if strings.Contains(got, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	if n := strings.Count(got, "<script"); n != 1 {
		t.Errorf("%d scripts, want ours alone", n)
	}
}

// Nothing in a page may make a browser ask anyone for anything.
func TestPageNamesNoAddress(t *testing.T) {
	got := strings.ReplaceAll(pageOf(t, generated(100, 4)), `"http://www.w3.org/2000/svg"`, "")
	for _, bad := range []string{"http:", "https:", "//cdn", "@import", "<link rel=\"style", " src="} {
		if strings.Contains(got, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
}

func TestEmptyStatesSayWhy(t *testing.T) {
	nan := []float64{math.NaN(), math.Inf(1)}
	for name, s := range map[string]Study{
		"no runs":      {},
		"runs of none": {Runs: []Run{{Name: "fifo"}, {Name: "sjf"}}},
		"NaN":          {Runs: []Run{{Name: "fifo", JCTSeconds: nan, Slowdowns: nan, Floor: math.NaN(), Bars: []Bar{{GPU: 3}}}}},
	} {
		got := pageOf(t, s)
		for _, want := range []string{"nothing to compare", "no completion time", "never in use", "no slowdown", "no stays",
			"Every row of the input took part"} {
			if !strings.Contains(strings.Replace(got, "was ever in use", "never in use", 1), want) {
				t.Errorf("%s: the page does not say %q", name, want)
			}
		}
		if strings.Contains(got, "NaN") {
			t.Errorf("%s: the page shows NaN", name)
		}
	}
}

func TestPartialIsABanner(t *testing.T) {
	s := generated(10, 2)
	if strings.Contains(pageOf(t, s), "Partial result") {
		t.Error("a complete study has the banner")
	}
	s.Partial = "interrupted"
	if !strings.Contains(pageOf(t, s), `<strong>Partial result.</strong> interrupted`) {
		t.Error("a partial study has no banner")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestWriteFault(t *testing.T) {
	if err := HTML(broken{}, Study{}); err == nil {
		t.Error("a writer's error is lost")
	}
}

// No study makes a page fail, show a number that is none, or leave an element open.
func TestAnyStudyMakesAPage(t *testing.T) {
	number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1e6), rapid.SampledFrom([]float64{0, 1, math.NaN(), math.Inf(1), -1}))
	instant := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 1e15))
	rapid.Check(t, func(t *rapid.T) {
		var s Study
		for range rapid.IntRange(0, 7).Draw(t, "runs") {
			r := Run{Name: rapid.StringMatching(`[^%]*`).Draw(t, "name"), JCTSeconds: rapid.SliceOfN(number, 0, 9).Draw(t, "jct"),
				Slowdowns: rapid.SliceOfN(number, 0, 9).Draw(t, "slowdowns"), Floor: number.Draw(t, "floor")}
			for range rapid.IntRange(0, 6).Draw(t, "bars") {
				r.Bars = append(r.Bars, Bar{rapid.StringMatching(`[^%]*`).Draw(t, "job"), rapid.IntRange(-1, 40).Draw(t, "gpu"),
					unit.Time(instant.Draw(t, "start")), unit.Time(instant.Draw(t, "end")), rapid.Bool().Draw(t, "below")})
				r.Usage = append(r.Usage, Step{unit.Time(instant.Draw(t, "at")), rapid.IntRange(0, 9000).Draw(t, "gpus")})
			}
			slices.SortFunc(r.Usage, func(a, b Step) int { return int(a.At>>1 - b.At>>1) })
			s.Runs = append(s.Runs, r)
		}
		got := pageOf(t, s)
		for _, bad := range []string{`"NaN`, `"-NaN`, "Inf%", "NaN%", "%!", "HNaN", "VNaN", "VInf"} {
			if strings.Contains(got, bad) {
				t.Fatalf("the page holds %q", bad)
			}
		}
		for _, name := range []string{"svg", "g", "section", "figure", "table", "details", "text"} {
			open := strings.Count(got, "<"+name+" ") + strings.Count(got, "<"+name+">")
			if closed := strings.Count(got, "</"+name+">"); open != closed {
				t.Fatalf("%d of %d <%s> are closed", closed, open, name)
			}
		}
	})
}

func TestThinKeepsEndsAndExtremes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3000).Draw(t, "points")
		rising := rapid.Bool().Draw(t, "rising")
		points := make([]point, n)
		seed := rapid.SliceOfN(rapid.Float64Range(0, 1), 50, 50).Draw(t, "seed")
		for i := range points {
			points[i] = point{float64(i) / float64(n), math.Mod(seed[i%50]*float64(i+7), 1)}
			if rising {
				points[i].y = points[i].x
			}
		}
		kept := thin(points)
		byHeight := func(a, b point) int { return int(math.Copysign(1, a.y-b.y)) }
		switch {
		case len(kept) > maxPoints, n <= maxPoints && len(kept) != n, rising && n > 2*maxPoints && len(kept) < maxPoints/2-2:
			t.Fatalf("%d of %d points kept", len(kept), n)
		case kept[0] != points[0], kept[len(kept)-1] != points[n-1]:
			t.Fatal("an end is lost")
		case slices.MinFunc(kept, byHeight).y != slices.MinFunc(points, byHeight).y,
			slices.MaxFunc(kept, byHeight).y != slices.MaxFunc(points, byHeight).y:
			t.Fatal("an extreme is lost")
		}
		for i := 1; i < len(kept); i++ {
			if kept[i].x <= kept[i-1].x {
				t.Fatal("points are out of order")
			}
		}
	})
}

func labels(a axis) string {
	var all []string
	for _, t := range a.ticks {
		all = append(all, t.label)
	}
	return strings.Join(all, " ")
}

func TestAxes(t *testing.T) {
	for _, c := range []struct {
		got  axis
		want string
	}{
		{logTime("", 3, 4e5), "1 s 10 s 1 min 10 min 1 h 1 d 10 d"}, {logTime("", 3700, 10000), "1 h 2 h 5 h"},
		{logTime("", 0.5, 0.5), "500 ms 1 s"}, {logTime("", 1, 1), "1 s 2 s"}, {logTime("", 0, 1e300), "1 ms 10 ms 100 ms 1 s 10 s 1 min 10 min 1 h 1 d 10 d 100 d 1000 d 10000 d 100000 d"},
		{linearTime("", 4.4*aDay), "0 1 2 3 4"}, {linearTime("", 3*hour), "0 30 60 90 120 150 180"},
		{linearTime("", 41*aDay), "0 10 20 30 40"}, {linearTime("", 0), "0 1"}, {linearTime("", 90), "0 15 30 45 60 75 90"},
		{counts("", 16, report.Count), "0 2 4 6 8 10 12 14 16"}, {counts("", 1, report.Count), "0 1"}, {counts("", 0, report.Count), "0 1"},
		{counts("", 6212, report.Count), "0 1,000 2,000 3,000 4,000 5,000 6,000 7,000"},
		{shares("", 1), "0 20 40 60 80 100"}, {shares("", 0.39), "0 5 10 15 20 25 30 35 40"}, {shares("", 0), "0 1 2 3 4"},
		{ratios("", 1.22), "1.00 1.05 1.10 1.15 1.20"}, {ratios("", 5), "1 2 3 4 5"}, {ratios("", 1.1), "1.00 1.02 1.04 1.06 1.08 1.10"},
	} {
		if diff := cmp.Diff(c.want, labels(c.got)); diff != "" {
			t.Error(diff)
		}
		last := 0.0
		for i, x := range c.got.ticks {
			at := c.got.at(x.value)
			if at < 0 || at > 1 || i > 0 && at <= last {
				t.Errorf("tick %s of %q lies at %g", x.label, c.want, at)
			}
			last = at
		}
	}
}

// The histogram loses no job and agrees with a direct count of those below the floor, also exactly at it.
func TestHistogramCountsEveryJob(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		floor := rapid.SampledFrom([]float64{0, 0.2, 0.5, 0.8, 0.85, 0.9, 0.99, 1}).Draw(t, "floor")
		slow := rapid.SliceOfN(rapid.OneOf(rapid.Float64Range(1, 8), rapid.SampledFrom([]float64{1, 1.25, 1 / 0.85, 1 / 0.9, 1e9})), 1, 60).Draw(t, "slow")
		h := histogram{run: Run{Floor: floor}, sorted: ordered(slow, 1), limit: math.Inf(1)}
		want := 0
		if floor > 0 {
			h.limit = 1 / floor
			for _, v := range slow {
				if v > h.limit+tolerance {
					want++
				}
			}
		}
		top := rapid.Float64Range(1.1, 6).Draw(t, "top")
		h.fill(top)
		total, right := h.beyond, h.beyond
		for i, n := range h.counts {
			total += n
			if h.edges[i] >= h.limit-tolerance {
				right += n
			}
		}
		if total != len(slow) || h.below != want {
			t.Fatalf("%d of %d jobs counted, %d below the floor, want %d", total, len(slow), h.below, want)
		}
		onEdge := func(e float64) bool { return math.Abs(e-h.limit) < tolerance }
		if slices.ContainsFunc(h.edges, onEdge) != (h.limit < top) && h.limit != top {
			t.Fatalf("no edge of %v lies on %g", h.edges, h.limit)
		}
		if h.limit < top && right != want {
			t.Fatalf("%d jobs right of the line, want %d", right, want)
		}
	})
}

func TestStretch(t *testing.T) {
	usage := []Step{{10e9, 4}, {20e9, 2}, {40e9, 0}}
	for _, c := range []struct {
		from, to unit.Time
		peak     int
		mean     float64
	}{{10e9, 40e9, 4, 80.0 / 30}, {0, 40e9, 4, 2}, {15e9, 25e9, 4, 3}, {40e9, 50e9, 0, 0}, {0, 10e9, 0, 0}, {20e9, 30e9, 2, 2}} {
		peak, mean := stretch(usage, c.from, c.to)
		if peak != c.peak || math.Abs(mean-c.mean) > 1e-12 {
			t.Errorf("[%d, %d): peak %d, mean %g, want %d, %g", c.from, c.to, peak, mean, c.peak, c.mean)
		}
	}
}

// Lanes hold every stay once, none overlaps another of its lane, and there are as many as residents at most.
func TestLanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Run
		for i := range rapid.IntRange(0, 40).Draw(t, "bars") {
			start := rapid.Int64Range(0, 50).Draw(t, "start")
			r.Bars = append(r.Bars, Bar{Job: fmt.Sprint(i), GPU: rapid.IntRange(0, 2).Draw(t, "gpu"), Start: unit.Time(start),
				End: unit.Time(start + rapid.Int64Range(1, 20).Draw(t, "length"))})
		}
		total := 0
		for _, s := range stripsOf(r) {
			most, busy := 0, unit.Time(0)
			for at := unit.Time(0); at < 70; at++ {
				n := 0
				for _, b := range r.Bars {
					n += one(b.GPU == s.gpu && b.Start <= at && at < b.End)
				}
				most = max(most, n)
				busy += unit.Time(one(n > 0))
			}
			if len(s.lanes) != most || s.busy != busy {
				t.Fatalf("%d lanes for %d residents, busy %d, want %d", len(s.lanes), most, s.busy, busy)
			}
			for _, lane := range s.lanes {
				total += len(lane)
				for i := 1; i < len(lane); i++ {
					if lane[i].start < lane[i-1].end {
						t.Fatal("stays of a lane overlap")
					}
				}
				joined := 0
				for _, v := range join(lane, rapid.SampledFrom([]unit.Time{0, 3, 100}).Draw(t, "short")) {
					joined += v.stays
				}
				if joined != len(lane) {
					t.Fatalf("%d of %d stays after joining", joined, len(lane))
				}
			}
		}
		if total != len(r.Bars) {
			t.Fatalf("%d of %d stays in lanes", total, len(r.Bars))
		}
	})
}

func BenchmarkPage(b *testing.B) {
	s := generated(82247, 100)
	for b.Loop() {
		if err := HTML(io.Discard, s); err != nil {
			b.Fatal(err)
		}
	}
}
