package estimate

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
)

// alone is a window of 10 s of a job alone at a speed and a busy share.
func alone(speed, busy float64) Window {
	const length = 10 * time.Second
	return Window{Length: length, Held: length, Used: time.Duration(busy * float64(length)), Iterations: uint64(speed * length.Seconds()), Alone: true, Age: time.Hour}
}

// beside is the same window of a job that waited for a share of it.
func beside(speed, busy, waited float64) Window {
	w := alone(speed*(1-waited), busy*(1-waited))
	w.Alone, w.Wait = false, time.Duration(waited*float64(w.Length))
	return w
}

func TestLearn(t *testing.T) {
	for _, c := range []struct {
		name    string
		told    Alone
		windows []Window
		want    Alone
	}{
		{"alone", Alone{}, []Window{alone(20, 0.6), alone(20, 0.6)}, Alone{Rate: 20, Busy: 0.6, Windows: 2, Source: Measured}},
		{"outliers", Alone{}, []Window{alone(20, 0.6), alone(2, 0.1), alone(20, 0.6), alone(20, 0.6), alone(200, 0.6)}, Alone{Rate: 20, Busy: 0.6, Windows: 5, Source: Measured}},
		{"the driver's figure first", Alone{}, []Window{func() Window { w := alone(20, 0.6); w.Utilisation = 0.7; return w }()},
			Alone{Rate: 20, Busy: 0.7, Windows: 1, Source: Measured}},
		{"measured before told", Alone{Rate: 5, Busy: 0.2, Source: Declared}, []Window{alone(20, 0.6)}, Alone{Rate: 20, Busy: 0.6, Windows: 1, Source: Measured}},
		{"beside others until alone", Alone{}, []Window{beside(20, 0.6, 0.5)}, Alone{Rate: 20, Busy: 0.6, Source: Shared}},
		{"beside others, then alone", Alone{}, []Window{beside(20, 0.6, 0.5), alone(30, 0.7)}, Alone{Rate: 30, Busy: 0.7, Windows: 1, Source: Measured}},
		{"declared before beside others", Alone{Busy: 0.2, Source: Declared}, []Window{beside(20, 0.6, 0.5)}, Alone{Rate: 20, Busy: 0.2, Source: Declared}},
		{"the catalogue after all", Alone{Rate: 5, Busy: 0.2, Source: Catalogue}, []Window{beside(20, 0.6, 0.5)}, Alone{Rate: 20, Busy: 0.6, Source: Shared}},
		{"faster than it was declared", Alone{Rate: 5, Busy: 0.2, Source: Declared}, []Window{beside(20, 0.6, 0.5)}, Alone{Rate: 10, Busy: 0.2, Source: Declared}},
		{"the warm-up of a program", Alone{}, []Window{{Length: 10 * time.Second, Used: time.Second, Held: time.Second, Iterations: 20, Alone: true, Age: 12 * time.Second}}, Alone{}},
		{"waits although alone", Alone{}, []Window{func() Window { w := beside(20, 0.6, 0.3); w.Alone = true; return w }()}, Alone{Rate: 20, Busy: 0.6, Source: Shared}},
		{"computed more than it held", Alone{}, []Window{{Length: 10 * time.Second, Held: 2 * time.Second, Used: 7 * time.Second, Iterations: 200}}, Alone{Rate: 20, Source: Shared}},
		{"few iterations", Alone{}, []Window{alone(0.4, 0.6)}, Alone{Busy: 0.6, Windows: 1, Source: Measured}},
		{"a clock that stepped back", Alone{}, []Window{{Length: -time.Hour, Used: time.Second, Iterations: 20, Alone: true}}, Alone{}},
		{"a clock that stepped far", Alone{}, []Window{{Length: 1 << 62, Used: time.Second, Iterations: 20, Alone: true}}, Alone{}},
		{"no length", Alone{}, []Window{{Used: time.Second, Iterations: 20, Alone: true}}, Alone{}},
		{"idle for a while", Alone{}, []Window{{Length: 5 * time.Minute, Alone: true}}, Alone{}},
		{"idle for long", Alone{}, []Window{{Length: 5 * time.Minute, Alone: true}, {Length: 5 * time.Minute}}, Alone{Idle: true}},
		{"idle, then not", Alone{Idle: true}, []Window{alone(20, 0.6)}, Alone{Rate: 20, Busy: 0.6, Windows: 1, Source: Measured}},
		{"told what cannot be", Alone{Rate: -1, Busy: 7, Source: Declared}, nil, Alone{}},
		{"told nothing", Alone{Rate: math.NaN(), Busy: math.Inf(1)}, nil, Alone{}},
	} {
		b := New(Options{})
		b.Tell("k", c.told)
		for _, w := range c.windows {
			b.Learn("k", w)
		}
		got, ok := b.Alone("k")
		if got.Rate, got.Busy = round(got.Rate), round(got.Busy); !ok {
			got = Alone{}
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func round(v float64) float64 { return math.Round(v*1e6) / 1e6 }

func TestRate(t *testing.T) {
	measured := func(b *Book) {
		for range 5 {
			b.Learn("k", alone(20, 0.6))
		}
	}
	for _, c := range []struct {
		name        string
		before      func(b *Book)
		w           Window
		rate, noise float64
		ok          bool
	}{
		{"by waits", func(*Book) {}, beside(0, 0.6, 0.25), 0.75, waitNoise, true},
		{"by iterations", measured, beside(20, 0.6, 0.25), 0.75, math.Hypot(stepNoise, countNoise/150), true},
		{"contention", measured, beside(10, 0.6, 0), 0.5, math.Hypot(math.Hypot(stepNoise, countNoise/100), 0.5*disagreement), true},
		{"too few iterations", measured, beside(0.3, 0.6, 0.25), 0.75, waitNoise, true},
		{"never above 1", measured, beside(30, 0.6, 0), 1, math.Hypot(stepNoise, countNoise/300), true},
		{"the catalogue says nothing of slowdowns", func(b *Book) { b.Tell("k", Alone{Rate: 100, Source: Catalogue}) }, beside(20, 0.6, 0.25), 0.75, waitNoise, true},
		{"what was declared does", func(b *Book) { b.Tell("k", Alone{Rate: 30, Source: Declared}) }, beside(20, 0.6, 0.25), 0.5, 0, true},
		{"all the time waited", measured, Window{Length: 10 * time.Second, Wait: time.Hour}, 0, waitNoise, true},
		{"nothing done", measured, Window{Length: 10 * time.Second}, 0, 0, false},
		{"no length", measured, Window{Held: time.Second}, 0, 0, false},
		{"negative length", measured, Window{Length: -time.Second, Held: time.Second}, 0, 0, false},
		{"negative wait", measured, Window{Length: time.Second, Held: time.Second, Wait: -time.Second}, 0, 0, false},
		{"warm-up", measured, Window{Length: 10 * time.Second, Held: time.Second, Age: 14 * time.Second}, 0, 0, false},
	} {
		b := New(Options{})
		c.before(b)
		rate, noise, ok := b.Rate("k", c.w)
		if math.Abs(rate-c.rate) > 1e-9 || c.noise > 0 && math.Abs(noise-c.noise) > 1e-9 || ok != c.ok {
			t.Errorf("%s: %g (noise %g), %v, want %g (%g), %v", c.name, rate, noise, ok, c.rate, c.noise, c.ok)
		}
	}
}

// TestRateIsOne: whatever the window, a rate is in 0..1 and its noise above 0.
func TestRateIsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(Options{})
		b.Tell("k", drawAlone(t, "told"))
		for range rapid.IntRange(0, 5).Draw(t, "windows") {
			b.Learn("k", drawWindow(t))
		}
		rate, noise, ok := b.Rate("k", drawWindow(t))
		if ok && !(rate >= 0 && rate <= 1 && noise > 0 && noise < 1) {
			t.Fatalf("rate %g, noise %g", rate, noise)
		}
		if a, ok := b.Alone("k"); ok && !(a.Rate >= 0 && a.Rate <= largestRate && a.Busy >= 0 && a.Busy <= 1) {
			t.Fatalf("%+v", a)
		}
	})
}

// TestNarrowsWithWindows: the low bound of a pair rises with the windows that its busy shares were measured in.
func TestNarrowsWithWindows(t *testing.T) {
	b, last := New(Options{}), 0.0
	k := Kind{"k", cluster.Burstable}
	for n := range 6 {
		b.Learn("k", alone(20, 0.4))
		_, low, _, basis := b.Predict(k, []Kind{k})
		if low < last || basis != Measured {
			t.Errorf("window %d: low %g after %g, %s", n, low, last, basis)
		}
		last = low
	}
	if last < 0.65 {
		t.Errorf("low %g after six windows", last)
	}
}

// TestNewFactsKeepObservations: what was observed of a pair outlasts what is told of its jobs.
func TestNewFactsKeepObservations(t *testing.T) {
	b := New(Options{})
	i, l := Kind{"i", cluster.Burstable}, Kind{"l", cluster.Burstable}
	for range 10 {
		b.Observe(i, []Kind{l}, 0.7, 0.03)
	}
	b.Tell("i", Alone{Busy: 0.05, Source: Declared})
	b.Tell("l", Alone{Busy: 0.05, Source: Declared})
	mean, low, _, basis := b.Predict(i, []Kind{l})
	if math.Abs(mean-0.7) > 0.04 || low < 0.6 || basis != "observed" || b.Seen(i, l) != 10 {
		t.Errorf("mean %g, low %g, %s, seen %d", mean, low, basis, b.Seen(i, l))
	}
	if other, _, _, _ := b.Predict(l, []Kind{i}); other < 0.95 {
		t.Errorf("the direction that was not observed is at %g", other)
	}
}

// TestIdleAddsNothing: a job that uses no GPU slows nobody, and is slowed by nobody.
func TestIdleAddsNothing(t *testing.T) {
	b := New(Options{})
	i, l := Kind{"i", cluster.Burstable}, Kind{"l", cluster.Guaranteed}
	b.Tell("i", Alone{Idle: true})
	for _, p := range [][2]Kind{{i, l}, {l, i}, {i, i}} {
		if mean, low, _, basis := b.Predict(p[0], []Kind{p[1]}); mean != 1 || low < 0.98 || basis != Measured {
			t.Errorf("%v: mean %g, low %g, %s", p, mean, low, basis)
		}
	}
}

// TestLearnedPredictor: it counts within a class where both are known on the GPU, also by names in another case; the bound is the
// worse of both.
func TestLearnedPredictor(t *testing.T) {
	o := Options{GPU: "v100", Predictor: predictor(t)}
	i, l := Kind{"resnet-18:16", cluster.Burstable}, Kind{"Transformer:64", cluster.Burstable}
	b := New(o)
	b.Tell(i.Key, Alone{Rate: 77, Source: Catalogue})
	mean, low, _, basis := b.Predict(i, []Kind{l})
	if basis != "new job" && basis != "known" || mean < 0.65 || low > 0.6 {
		t.Errorf("mean %g, low %g, %s", mean, low, basis)
	}
	t.Logf("%s: %.3f, at least %.3f", basis, mean, low)
	for _, k := range []Kind{i, l} {
		b.Tell(k.Key, Alone{Rate: 77, Busy: 0.05, Source: Declared})
	}
	told, least, _, basis := b.Predict(i, []Kind{l})
	if basis != Declared || told < 0.95 || least > mean {
		t.Errorf("both busy 0.05: mean %g, low %g, %s; the predictor's mean is %g", told, least, basis, mean)
	}
	if _, _, _, basis := b.Predict(Kind{i.Key, cluster.BestEffort}, []Kind{{"other", cluster.Burstable}}); basis != "unknown" {
		t.Errorf("beside an unknown one: %s", basis)
	}
	if _, _, _, basis := New(Options{GPU: "h200", Predictor: o.Predictor}).Predict(i, []Kind{l}); basis != "unknown" {
		t.Errorf("on a GPU that it does not know: %s", basis)
	}
}
