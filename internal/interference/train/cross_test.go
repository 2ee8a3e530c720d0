package train

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"pgregory.net/rapid"
	"weft.dev/weft/internal/interference/model"
)

// A spy for a learner: whatever split, no fit sees a pair of a group that it is judged on, tests and calibration
// partition what they should, and both directions of a pair stay together.
func TestNoFitSeesWhatItIsJudgedOn(t *testing.T) {
	d, many := NewData(cluster(7, 2, 0, 1)), NewData(cluster(2*maxGroups+1, 1, 0, 1))
	for name, f := range map[string]*folds{"random": randomly(d, 1), "model": foldsBy(d, byModel), "many models": foldsBy(many, byModel)} {
		d := d
		if name == "many models" {
			d = many
		}

		var mutex sync.Mutex
		spy := Learner{Name: "spy", fit: func(d *Data, rows []int, _ uint64) predictor {
			seen := map[int]bool{}
			groups := map[int]bool{}
			for _, i := range rows {
				seen[i] = true
				for _, g := range f.of[i/2] {
					groups[g] = true
				}
			}
			for _, i := range rows {
				if !seen[i^1] {
					t.Errorf("%s: sample %d without its other direction", name, i)
				}
			}
			return func(i int) (float64, float64) {
				mutex.Lock()
				defer mutex.Unlock()
				if seen[i] || seen[i^1] {
					t.Errorf("%s: sample %d was fitted to and judged", name, i)
				}
				hidden := false
				for _, g := range f.of[i/2] {
					hidden = hidden || !groups[g]
				}
				if !hidden {
					t.Errorf("%s: no group of sample %d was held out", name, i)
				}
				return 0.5, 0.5
			}
		}}
		h, err := cross(context.Background(), d, spy, f, 1, func() {})
		if err != nil {
			t.Fatal(err)
		}
		for g := range f.groups {
			want := 0
			for i := range d.y {
				if f.in(i, g) {
					want++
				}
			}
			if len(h.tests[g]) != want {
				t.Errorf("%s: group %d has %d tests of %d samples", name, g, len(h.tests[g]), want)
			}
			for _, s := range h.calibs[g] {
				if f.in(s.row, g) {
					t.Errorf("%s: sample %d of group %d calibrates it", name, s.row, g)
				}
			}
		}
	}
}

// Samples like those of the calibration are covered as often as said, in all and among those admitted at any floor,
// though errors gather at high scores.
func TestBoundsCoverWhatTheyPromise(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 8))
	sample := func(n int) (*Data, []judged) {
		d := &Data{}
		var list []judged
		for i := range n {
			score := 0.3 + 0.7*random.Float64()
			y := score + 0.02*random.NormFloat64()
			if score > 0.8 && random.Float64() < 0.05 {
				y = 0.4 // one offset for all scores would not see these
			}
			d.y = append(d.y, min(max(y, 0.01), 1))
			list = append(list, judged{row: i, mean: score, score: score})
		}
		return d, list
	}
	for _, coverage := range []float64{0.8, 0.9, 0.95} {
		d, calib := sample(3000)
		b := calibrate(d, calib, calibration{coverage: coverage, run: randomRun})
		d, fresh := sample(4000)
		var outcomes []Outcome
		for _, s := range fresh {
			outcomes = append(outcomes, Outcome{s.row, d.y[s.row], s.mean, b.Lower(s.score)})
		}
		f := Summarise(outcomes)
		slack := 3 * math.Sqrt(coverage*(1-coverage)/float64(randomRun)) / math.Sqrt(20) // of the calibration's own runs
		if f.Coverage < coverage-slack || f.Coverage > coverage+0.1 {
			t.Errorf("coverage %v: %v of new rates held", coverage, f.Coverage)
		}
		for k := range Floors {
			if f.Admitted[k] > 0 && f.False[k] > 1-coverage+0.05 {
				t.Errorf("coverage %v, floor %v: %v of %d admitted are below", coverage, Floors[k], f.False[k], f.Admitted[k])
			}
		}
	}
}

// In a grouped calibration the bound is that of the worst group, not of the mixture.
func TestGroupedBoundsHoldInEveryGroup(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 8))
	d := &Data{}
	var calib []judged
	for i := range 2000 {
		group := i % 5
		score := 0.5 + 0.5*random.Float64()
		y := score - 0.02*random.Float64()
		if group == 3 {
			y -= 0.3
		}
		d.y = append(d.y, y)
		calib = append(calib, judged{i, group, score, score})
	}
	b := calibrate(d, calib, calibration{coverage: 0.9, run: groupRun, grouped: true})
	held, n := 0, 0
	for _, s := range calib {
		if s.group == 3 {
			n++
			if d.y[s.row] >= b.Lower(s.score) {
				held++
			}
		}
	}
	if share := float64(held) / float64(n); share < 0.9 {
		t.Errorf("the bound holds for %v of the worst group", share)
	}
}

func TestBoundsNeverFallAndStayRates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &Data{}
		var calib []judged
		for i := range rapid.IntRange(1, 300).Draw(t, "n") {
			d.y = append(d.y, rapid.Float64Range(0.01, 1).Draw(t, "y"))
			calib = append(calib, judged{i, i % 3, 0, rapid.SampledFrom([]float64{0.1, 0.2, 0.5, 0.9}).Draw(t, "score")})
		}
		c := calibration{coverage: rapid.Float64Range(0.5, 0.99).Draw(t, "coverage"), run: randomRun, grouped: rapid.Bool().Draw(t, "grouped")}
		b := calibrate(d, calib, c)
		last := 0.0
		for s := 0.0; s <= 1; s += 0.05 {
			low := b.Lower(s)
			if low < last || low > 1 {
				t.Fatalf("bound %v at score %v after %v", low, s, last)
			}
			last = low
		}
	})
}

func TestFigures(t *testing.T) {
	f := Summarise([]Outcome{{0, 0.9, 0.8, 0.7}, {1, 0.5, 0.6, 0.85}, {2, 0.95, 0.9, 0.85}, {3, 0.8, 0.7, 0.8}})
	if math.Abs(f.MAE-0.0875) > 1e-9 || f.Coverage != 0.75 || f.N != 4 {
		t.Errorf("%+v", f)
	}
	// of three bounds at 0.8 or more one is of a rate of 0.5; of two at 0.85 likewise; none reaches 0.9
	if math.Abs(f.False[0]-1.0/3) > 1e-9 || f.False[1] != 0.5 || f.Admitted[2] != 0 || !math.IsNaN(f.False[2]) || f.Possible[0] != 3 {
		t.Errorf("false admits %v of %v", f.False, f.Admitted)
	}
}

func TestExceedsIsTheBinomialTail(t *testing.T) {
	for _, x := range []struct {
		misses, n int
		want      bool
	}{{0, 0, false}, {3, 9, false}, {4, 9, true}, {10, 100, false}, {16, 100, false}, {17, 100, true}, {1, 1, false}, {130, 1000, true}} {
		if got := Exceeds(x.misses, x.n, 0.1); got != x.want {
			t.Errorf("%d of %d: %v", x.misses, x.n, got)
		}
	}
}

func TestStudyIsDeterministicAndStops(t *testing.T) {
	pairs := cluster(7, 2, 0.05, 1)
	o := Options{Coverage: 0.9, Seed: 3, Learners: []string{"gbdt", "completion"}}
	run := func() ([]Split, *model.Model) {
		splits, m, err := Study(context.Background(), pairs, o)
		if err != nil {
			t.Fatal(err)
		}
		return splits, m
	}
	s1, m1 := run()
	s2, m2 := run()
	text1, _ := m1.Encode()
	text2, _ := m2.Encode()
	if !bytes.Equal(text1, text2) || len(s1) != len(s2) {
		t.Error("two studies of one seed differ")
	}
	for i := range s1 {
		if !reflect.DeepEqual(s1[i].Outcomes, s2[i].Outcomes) {
			t.Errorf("split %d differs", i)
		}
	}
	if _, err := model.Decode(text1); err != nil {
		t.Error(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, _, err := Study(ctx, pairs, o); err == nil {
		t.Error("a cancelled study ends without an error")
	}
}

// A model judges pairs of its own kind as its study said, and refuses to vouch for another campaign's.
func TestEvaluateUsesTheBasisOfEachPair(t *testing.T) {
	pairs := cluster(7, 2, 0.05, 1)
	_, m, err := Study(context.Background(), pairs, Options{Coverage: 0.9, Seed: 3, Learners: []string{"completion"}})
	if err != nil {
		t.Fatal(err)
	}
	outcomes, notes := Evaluate(m, pairs)
	if f := Summarise(outcomes); f.MAE > 0.03 || f.Coverage < 0.9 || notes != nil {
		t.Errorf("on its own pairs: %+v, notes %v", f, notes)
	}
	for i := range pairs {
		pairs[i].Source = "other"
	}
	outcomes, notes = Evaluate(m, pairs)
	if f := Summarise(outcomes); f.Coverage != 1 || f.Admitted[0] != 0 || len(notes) != 1 {
		t.Errorf("on another campaign's: %+v, notes %v", f, notes)
	}
}

// Where a job's deviations are alike, one probe tells most; where they are noise, next to nothing.
func TestKappaTellsJobsFromNoise(t *testing.T) {
	d := NewData(cluster(7, 3, 0, 1))
	f := foldsBy(d, byModel)
	random := rand.New(rand.NewPCG(5, 5))
	predictions := func(common, noise float64) []judged {
		bias := map[newJob]float64{}
		var list []judged
		for g := range f.groups {
			for i := range d.y {
				if !f.in(i, g) {
					continue
				}
				s := judged{row: i, group: g}
				job, _ := jobOf(d, f, s)
				if _, ok := bias[job]; !ok {
					bias[job] = common * random.NormFloat64()
				}
				s.mean = unit(d.y[i] + bias[job] + noise*random.NormFloat64())
				s.score = s.mean
				list = append(list, s)
			}
		}
		return list
	}
	if k := kappaOf(d, f, predictions(0.1, 0.01), 1); k > 0.25 {
		t.Errorf("deviations of the job: kappa %v", k)
	}
	if k := kappaOf(d, f, predictions(0, 0.05), 1); k < 8 {
		t.Errorf("noise: kappa %v", k)
	}
}
