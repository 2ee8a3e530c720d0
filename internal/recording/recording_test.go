package recording

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

const ms = unit.Time(time.Millisecond)

func curveOf(points []Point, end unit.Time) Curve {
	var b Builder
	for _, p := range points {
		b.Add(p.At, p.Bytes)
	}
	c, _ := b.Curve(0, end)
	return c
}

// anyCurve draws steps of any length, zero included, and any level.
func anyCurve(t *rapid.T) Curve {
	var at unit.Time
	var points []Point
	for range rapid.IntRange(1, 80).Draw(t, "points") {
		points = append(points, Point{at, unit.Bytes(rapid.Int64Range(0, 1<<40).Draw(t, "bytes"))})
		at += unit.Time(rapid.Int64Range(0, 1e9).Draw(t, "gap"))
	}
	return curveOf(points, at)
}

// TestQuantisationDominates: at every level the profile exceeds it at least as often as the curve did.
func TestQuantisationDominates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyCurve(t)
		span := []Iteration{{c.Start(), max(c.End, c.Start()+1)}}
		d := gather(c, span)
		p := quantise(d, rapid.IntRange(1, MaxLevels).Draw(t, "levels"))
		if p.Persistent != d.least() || p.Peak() != d.most() {
			t.Fatalf("%d to %d, recorded %d to %d", p.Persistent, p.Peak(), d.least(), d.most())
		}
		sum := 0.0
		for _, l := range p.Ephemeral {
			sum += l.Fraction
		}
		if len(p.Ephemeral) > 0 && math.Abs(sum-1) > 1e-9 {
			t.Fatalf("shares sum to %v", sum)
		}
		above := int64(0)
		for i := len(d.levels) - 1; i >= 0; i-- {
			above += d.levels[i].ns
			if got, want := exceeds(p, d.levels[i].bytes-1), float64(above)/float64(d.total); got < want-1e-9 {
				t.Fatalf("above %d for %v of the time, recorded %v", d.levels[i].bytes-1, got, want)
			}
		}
	})
}

// exceeds is the share of time that a profile holds more than b.
func exceeds(p profile.Profile, b unit.Bytes) float64 {
	if p.Persistent > b {
		return 1
	}
	share := 0.0
	for _, l := range p.Ephemeral {
		if p.Persistent+l.Bytes > b {
			share += l.Fraction
		}
	}
	return share
}

func TestAnalysisOfAnyCurve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Recording{Allocated: anyCurve(t), Clock: Clock(rapid.IntRange(0, 2).Draw(t, "clock")), Outside: rapid.Bool().Draw(t, "outside")}
		if rapid.Bool().Draw(t, "marked") && r.Allocated.End > 2 {
			r.Marks = SortMarks([]Iteration{{1, r.Allocated.End}, {0, r.Allocated.End / 2}, {r.Allocated.End / 3, r.Allocated.End}})
		}
		a := Analyse(r, rapid.IntRange(1, 40).Draw(t, "levels"))
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		file := rapid.SampledFrom([]string{"p.json", "p.yaml", "p.yml"}).Draw(t, "file")
		if err := Write(&text, file, []Summary{a.Summary("x")}); err != nil {
			t.Fatal(err)
		}
		p, _, err := ReadProfile(file, &text)
		if err != nil || p.Compare(a.Profile) != 0 {
			t.Fatalf("read %v, wrote %v: %v", p, a.Profile, err)
		}
	})
}

// jittered is n iterations of a sawtooth between 1 and 3 GiB, whose lengths vary, after a start-up.
func jittered(n int, period time.Duration, jitter float64, startup bool, seed uint64) Curve {
	random := rand.New(rand.NewPCG(seed, 1))
	var at unit.Time
	var points []Point
	if startup {
		for i := range 200 { // loading: a slow rise from nothing
			points = append(points, Point{at, unit.Bytes(i) * unit.GiB / 200})
			at += unit.Time(period) / 20
		}
	}
	for range n {
		length := float64(period) * (1 + jitter*(2*random.Float64()-1))
		for i := range 50 {
			level := unit.GiB + unit.Bytes(2*float64(unit.GiB)*math.Sin(math.Pi*float64(i)/50)*float64(min(i, 40))/40)
			if i >= 45 {
				level = unit.GiB
			}
			wobble := unit.Bytes(random.Float64() * float64(20*unit.MiB))
			points = append(points, Point{at + unit.Time(length*float64(i)/50), level + wobble})
		}
		at += unit.Time(length)
	}
	return curveOf(points, at)
}

func TestFindIterations(t *testing.T) {
	for _, jitter := range []float64{0, 0.05, 0.2} {
		for _, startup := range []bool{false, true} {
			for seed := range uint64(5) {
				found := FindIterations(jittered(20, 100*time.Millisecond, jitter, startup, seed))
				if len(found) < 18 || len(found) > 20 {
					t.Errorf("jitter %v, start-up %v: %d iterations of 20", jitter, startup, len(found))
					continue
				}
				if got := medianDuration(found); math.Abs(float64(got)/1e8-1) > 0.02+jitter/2 {
					t.Errorf("jitter %v, start-up %v: period %v, want 100 ms", jitter, startup, got)
				}
			}
		}
	}
}

func TestNoPeriod(t *testing.T) {
	curves := map[string]Curve{
		"flat":    curveOf([]Point{{0, unit.GiB}}, 1000*ms),
		"rise":    curveOf([]Point{{0, 1}, {100 * ms, unit.GiB}, {200 * ms, 2 * unit.GiB}}, 1000*ms),
		"one":     jittered(1, 100*time.Millisecond, 0, false, 1),
		"instant": curveOf([]Point{{0, 1}, {0, 5}, {0, 1}, {0, 5}, {0, 1}, {0, 5}, {0, 1}}, 0),
	}
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 2))
		var noise, walk []Point
		level := 50.0
		for i := range 600 {
			noise = append(noise, Point{unit.Time(i) * ms, unit.Bytes(random.Float64() * 1e9)})
			level += random.NormFloat64()
			walk = append(walk, Point{unit.Time(i) * ms, unit.Bytes(max(0, level) * 1e7)})
		}
		curves[fmt.Sprintf("noise %d", seed)] = curveOf(noise, 600*ms)
		curves[fmt.Sprintf("walk %d", seed)] = curveOf(walk, 600*ms)
	}
	for name, c := range curves {
		if found := FindIterations(c); found != nil {
			t.Errorf("%s: %d iterations", name, len(found))
		}
	}
}

func TestThinningIsSafe(t *testing.T) {
	var b Builder
	const n = maxPoints*2 + 77
	for i := range n {
		b.Add(unit.Time(i), unit.Bytes(i%7*1000))
	}
	c, thinned := b.Curve(0, 0)
	if !thinned || len(c.Points) > maxPoints {
		t.Fatalf("%d points", len(c.Points))
	}
	for i := 0; i < n; i += 997 {
		if held := c.Points[c.index(unit.Time(i))].Bytes; held < unit.Bytes(i%7*1000) {
			t.Fatalf("at %d: %d held, recorded %d", i, held, i%7*1000)
		}
	}
	if c.End != n-1 {
		t.Errorf("ends at %d", c.End)
	}
}

func TestVerdicts(t *testing.T) {
	swing := jittered(10, 100*time.Millisecond, 0, false, 3)
	steady := curveOf([]Point{{0, 4 * unit.GiB}}, swing.End)
	flat := curveOf([]Point{{0, 2 * unit.GiB}}, 1000*ms)
	for want, r := range map[VerdictCode]Recording{
		KeepsCache: {Allocated: swing, Reserved: steady}, GivesBack: {Allocated: swing, Reserved: swing}, MayKeepCache: {Allocated: swing},
		Flat: {Allocated: flat}, FlatOutside: {Allocated: flat, Outside: true},
	} {
		if v := Analyse(r, 12).Verdict; v.Code != want {
			t.Errorf("%s, want %s: %s", v.Code, want, v.Text)
		}
	}
	if v := Analyse(Recording{Allocated: swing, Outside: true}, 12).Verdict; v.Code != GivesBack || !strings.Contains(v.Text, "from outside") {
		t.Errorf("a valley seen from outside: %s", v.Text)
	}
}

func TestWarmUp(t *testing.T) {
	marks := []Iteration{{0, 300 * ms}}
	points := []Point{{0, 9 * unit.GiB}, {300 * ms, unit.GiB}}
	for i := range unit.Time(8) {
		at := 300*ms + i*100*ms
		points = append(points, Point{at, unit.GiB}, Point{at + 50*ms, 2 * unit.GiB})
		marks = append(marks, Iteration{at, at + 100*ms})
	}
	a := Analyse(Recording{Allocated: curveOf(points, 1100*ms), Marks: marks}, 12)
	if len(a.Iterations) != 8 || a.Profile.Peak() != 2*unit.GiB || !strings.Contains(strings.Join(a.Notes, " "), "up to 9.0 GiB") {
		t.Errorf("%d iterations, peak %v, notes %q", len(a.Iterations), a.Profile.Peak(), a.Notes)
	}
}

func TestReadProfileFaults(t *testing.T) {
	const good = `{"schema":1,"name":"x","persistent_mib":10,"peak_mib":20,"levels":[{"mib":5,"fraction":0.5},{"mib":10,"fraction":0.5}]}`
	if p, _, err := ReadProfile("x", strings.NewReader(good)); err != nil || p.Peak() != 20*unit.MiB {
		t.Fatalf("%v, %v", p, err)
	}
	for change, want := range map[[2]string]string{
		{`"schema":1`, `"schema":2`}:                                  "profile schema 2; 1 is known",
		{`"fraction":0.5}]`, `"fraction":0.6}]`}:                      "sum to 1.1",
		{`"mib":10,`, `"mib":5,`}:                                     "levels ascend",
		{`"fraction":0.5}]`, `"fraction":-1}]`}:                       "levels ascend",
		{`"peak_mib":20`, `"peak_mib":5`}:                             "no range",
		{`"peak_mib":20`, `"peak_mib":200`}:                           "is not persistent plus",
		{`"persistent_mib":10`, `"persistent_mib":-1`}:                "no range",
		{`"peak_mib":20`, `"peak_mib":1e300`}:                         "no range",
		{good, `{"schema":1,"profiles":[{"name":"a"},{"name":"b"}]}`}: "2 profiles: a, b",
		{good, `[1,2]`}:                                               "no profile file",
		{good, ``}:                                                    "schema 0",
		{good, "\x00"}:                                                "no profile file",
		{good, "a: [1"}:                                               "no profile file",
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		_, _, err := ReadProfile("x", strings.NewReader(text))
		var faults trace.Errors
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzReadProfile(f *testing.F) {
	f.Add(`{"schema":1,"persistent_mib":10,"peak_mib":20,"levels":[{"mib":10,"fraction":1}]}`)
	f.Add("schema: 1\npersistent_mib: 3\npeak_mib: 3\nlevels:\n- {mib: 0, fraction: 1}\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, _, err := ReadProfile("x", strings.NewReader(text))
		if err == nil && (p.Peak() < p.Persistent || p.Persistent < 0 || math.IsNaN(p.Mean())) {
			t.Fatalf("%q: %v", text, p)
		}
	})
}
