package estimate

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

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference/model"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// classOf draws a class.
func drawClass(t *rapid.T, label string) cluster.Class {
	return rapid.SampledFrom([]cluster.Class{cluster.Burstable, cluster.Guaranteed, cluster.BestEffort}).Draw(t, label)
}

// drawAlone draws what is known of a job, also what cannot be.
func drawAlone(t *rapid.T, label string) Alone {
	number := rapid.OneOf(rapid.Float64Range(0, 1), rapid.Float64Range(0.5, 400), rapid.SampledFrom([]float64{0, -1, 1, 1e300, math.NaN(), math.Inf(1)}))
	return Alone{
		Rate: number.Draw(t, label+" rate"), Busy: number.Draw(t, label+" busy"), Idle: rapid.IntRange(0, 9).Draw(t, label+" idle") == 0,
		Source: rapid.SampledFrom([]string{Declared, Catalogue, "", "nonsense"}).Draw(t, label+" source"),
	}
}

// TestBoundsAreOrdered: whatever is told and observed, 0 < low <= mean <= high <= 1, and Safe says what Predict says.
func TestBoundsAreOrdered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(Options{Minimum: rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(t, "minimum"), Coverage: rapid.SampledFrom([]float64{0, 0.6, 0.99}).Draw(t, "coverage")})
		var kinds []Kind
		for i := range rapid.IntRange(1, 5).Draw(t, "kinds") {
			k := Kind{string(rune('a' + i)), drawClass(t, "class")}
			kinds = append(kinds, k)
			if rapid.Bool().Draw(t, "told") {
				b.Tell(k.Key, drawAlone(t, k.Key))
			}
		}
		some := rapid.SliceOfN(rapid.SampledFrom(kinds), 1, 4)
		for range rapid.IntRange(0, 20).Draw(t, "observations") {
			b.Observe(rapid.SampledFrom(kinds).Draw(t, "k"), some.Draw(t, "others"), rapid.Float64Range(-1, 2).Draw(t, "rate"), rapid.Float64Range(-1, 2).Draw(t, "noise"))
		}
		k, others := rapid.SampledFrom(kinds).Draw(t, "asked"), some.Draw(t, "beside")
		mean, low, high, basis := b.Predict(k, others)
		if !(0 < low && low <= mean && mean <= high && high <= 1) {
			t.Fatalf("%v beside %v: %g <= %g <= %g (%s)", k, others, low, mean, high, basis)
		}
		slowdown := 1.0
		table := b.Safe()
		for _, o := range others {
			i, okI := table.Lookup(b.Config(k))
			l, okL := table.Lookup(b.Config(o))
			if !okI || !okL {
				t.Fatalf("%v or %v is not in the table", k, o)
			}
			slowdown += table.Added(i, l)
		}
		if math.Abs(1/slowdown-low) > 1e-9 {
			t.Fatalf("the table holds %g, low is %g", 1/slowdown, low)
		}
	})
}

// TestBusierIsSlower: rates and their low bounds fall with the busy share of either side.
func TestBusierIsSlower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i, l := Kind{"i", drawClass(t, "i")}, Kind{"l", drawClass(t, "l")}
		alone := func(label string) Alone {
			return Alone{Rate: rapid.Float64Range(0.1, 300).Draw(t, label+" rate"), Busy: rapid.Float64Range(0.01, 1).Draw(t, label+" busy"), Source: Declared}
		}
		x, y := alone("i"), alone("l")
		options := Options{Minimum: rapid.SampledFrom([]float64{0, 0.2}).Draw(t, "minimum")}
		predict := func(x, y Alone) (mean, low float64) {
			b := New(options)
			b.Tell("i", x)
			b.Tell("l", y)
			mean, low, _, _ = b.Predict(i, []Kind{l})
			return mean, low
		}
		mean, low := predict(x, y)
		x.Busy = rapid.Float64Range(x.Busy, 1).Draw(t, "i busier")
		y.Busy = rapid.Float64Range(y.Busy, 1).Draw(t, "l busier")
		busier, lower := predict(x, y)
		if busier > mean+1e-9 || lower > low+1e-9 {
			t.Fatalf("rate %g (low %g) falls to %g (low %g)", mean, low, busier, lower)
		}
	})
}

// TestBansWin: a banned pair is not in the table's rates whatever is observed, tried out or told, until it is lifted.
func TestBansWin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(Options{})
		i, l := Kind{"i", cluster.Burstable}, Kind{rapid.SampledFrom([]string{"i", "l"}).Draw(t, "l"), cluster.BestEffort}
		b.Ban(i, l, epoch.Add(time.Hour))
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				b.Observe(i, []Kind{l}, 1, 0.02)
			case 1:
				b.Observe(l, []Kind{i}, 1, 0.02)
			case 2:
				b.Tell("i", Alone{Busy: 0.1, Source: Declared})
			case 3:
				b.Review(epoch, []Count{{i, 9, 0.1}, {l, 9, 0.1}})
			case 4:
				text, err := b.Encode()
				if err != nil {
					t.Fatal(err)
				}
				b = New(Options{})
				if err := b.Restore(text); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !b.Banned(l, i) || !math.IsInf(added(b, i, l), 1) || !math.IsInf(added(b, l, i), 1) {
			t.Fatal("the ban does not hold")
		}
		if !b.Review(epoch.Add(time.Hour), nil) || b.Banned(i, l) || math.IsInf(added(b, i, l), 1) {
			t.Fatal("the ban does not end")
		}
	})
}

// added is what the table of Safe says.
func added(b *Book, i, l Kind) float64 {
	x, y := b.Config(i), b.Config(l)
	table := b.Safe()
	n, _ := table.Lookup(x)
	m, _ := table.Lookup(y)
	return table.Added(n, m)
}

// TestSeparatedWithinThreeWindows: three windows 20 points below the prediction put the mean below the floor in between, and
// the pair is not safe any more; whatever the class and what is known.
func TestSeparatedWithinThreeWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(Options{})
		i, l := Kind{"i", drawClass(t, "i")}, Kind{"l", drawClass(t, "l")}
		for _, key := range []string{"i", "l"} {
			if rapid.Bool().Draw(t, "told") {
				b.Tell(key, Alone{Rate: rapid.Float64Range(0.5, 50).Draw(t, "rate"), Busy: rapid.Float64Range(0.05, 1).Draw(t, "busy"), Source: Declared})
			}
		}
		predicted, low, _, basis := b.Predict(i, []Kind{l})
		if predicted < 0.3 {
			t.Skip("no room below")
		}
		floor := predicted - 0.1
		for range 3 {
			b.Observe(i, []Kind{l}, predicted-0.2, rapid.Float64Range(0.02, 0.05).Draw(t, "noise"))
		}
		mean, after, _, seen := b.Predict(i, []Kind{l})
		if mean >= floor || after >= floor || after > low && after > mean || seen != "observed" {
			t.Fatalf("%s: predicted %.3f (low %.3f), seen %.3f: mean %.3f, low %.3f, floor %.3f, %s", basis, predicted, low, predicted-0.2, mean, after, floor, seen)
		}
	})
}

// TestGoodWindowsMakeSafe: a pair that is not safe at a floor becomes so by windows above it.
func TestGoodWindowsMakeSafe(t *testing.T) {
	b := New(Options{})
	i, l := Kind{"i", cluster.Burstable}, Kind{"l", cluster.Burstable}
	const floor = 0.85
	if _, low, _, basis := b.Predict(i, []Kind{l}); low >= floor || basis != "unknown" {
		t.Fatalf("low %g, %s", low, basis)
	}
	n := 0
	for ; n < 100; n++ {
		if _, low, _, _ := b.Predict(i, []Kind{l}); low >= floor {
			break
		}
		b.Observe(i, []Kind{l}, 0.95, 0.05)
	}
	t.Logf("safe at a floor of %g after %d windows at 0.95", floor, n)
	if n < 2 || n > 15 {
		t.Errorf("safe after %d windows", n)
	}
}

// drawBook makes a book of random steps.
func drawBook(t *rapid.T, o Options) *Book {
	b := New(o)
	kind := rapid.Custom(func(t *rapid.T) Kind {
		return Kind{rapid.SampledFrom([]string{"a", "b", "c", "resnet-18:64", "user/name ü", "", "\xff", unknownModel}).Draw(t, "key"), drawClass(t, "class")}
	})
	for range rapid.IntRange(0, 60).Draw(t, "steps") {
		k := kind.Draw(t, "k")
		switch rapid.IntRange(0, 7).Draw(t, "step") {
		case 0:
			b.Tell(k.Key, drawAlone(t, "told"))
		case 1, 2:
			b.Learn(k.Key, drawWindow(t))
		case 3, 4:
			b.Observe(k, rapid.SliceOfN(kind, 0, 3).Draw(t, "others"), rapid.Float64Range(0, 1).Draw(t, "rate"), 0.05)
		case 5:
			b.Ban(k, kind.Draw(t, "other"), epoch.Add(rapid.SampledFrom([]time.Duration{-time.Hour, time.Hour}).Draw(t, "until")))
		case 6:
			b.Lift(k, kind.Draw(t, "other"))
		case 7:
			b.Review(epoch, []Count{{k, 3, 0.7}, {kind.Draw(t, "other"), 2, 0.5}})
		}
	}
	return b
}

// drawWindow draws a window, also one of a clock that stepped.
func drawWindow(t *rapid.T) Window {
	duration := rapid.OneOf(rapid.Int64Range(0, 2e10), rapid.Int64Range(-1e10, 1e10), rapid.Int64())
	return Window{
		Length: time.Duration(duration.Draw(t, "length")), Wait: time.Duration(duration.Draw(t, "wait")), Stall: time.Duration(duration.Draw(t, "stall")),
		Held: time.Duration(duration.Draw(t, "held")), Used: time.Duration(duration.Draw(t, "used")), Age: time.Duration(duration.Draw(t, "age")),
		Iterations:  rapid.OneOf(rapid.Uint64Range(0, 1000), rapid.Uint64()).Draw(t, "iterations"),
		Utilisation: rapid.OneOf(rapid.Float64Range(0, 1), rapid.Float64()).Draw(t, "utilisation"),
		Alone:       rapid.Bool().Draw(t, "alone"),
	}
}

// TestRestoreIsTheIdentity: what is encoded, restored and encoded is the same to the byte, and predicts the same.
func TestRestoreIsTheIdentity(t *testing.T) {
	p := predictor(t)
	rapid.Check(t, func(t *rapid.T) {
		o := Options{GPU: "v100", Predictor: p}
		b := drawBook(t, o)
		text, err := b.Encode()
		if err != nil {
			t.Fatal(err)
		}
		c := New(o)
		if err := c.Restore(text); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		again, err := c.Encode()
		if err != nil || !bytes.Equal(text, again) {
			t.Fatalf("%s\nbecomes\n%s, %v", text, again, err)
		}
		keys := []string{"a", "b", "c", "resnet-18:64", "user/name ü", "new"}
		for _, x := range keys {
			for _, y := range keys {
				for class := range classes {
					k, l := Kind{x, class}, Kind{y, cluster.Burstable}
					m1, l1, h1, s1 := b.Predict(k, []Kind{l})
					m2, l2, h2, s2 := c.Predict(k, []Kind{l})
					if m1 != m2 || l1 != l2 || h1 != h2 || s1 != s2 || b.Banned(k, l) != c.Banned(k, l) || b.Piloted(k, l) != c.Piloted(k, l) || added(b, k, l) != added(c, k, l) {
						t.Fatalf("%v beside %v: %g %g %g %s, then %g %g %g %s", k, l, m1, l1, h1, s1, m2, l2, h2, s2)
					}
				}
			}
			if was, ok := b.Alone(x); ok {
				if is, _ := c.Alone(x); is != was {
					t.Fatalf("%s was %+v, is %+v", x, was, is)
				}
			}
		}
	})
}

func predictor(t testing.TB) *model.Predictor {
	t.Helper()
	m, err := model.Default()
	if err != nil {
		t.Fatal(err)
	}
	return m.Predictor(nil, nil)
}

// TestRestoreRefuses: what cannot be is an error that leaves the book alone.
func TestRestoreRefuses(t *testing.T) {
	b := New(Options{})
	b.Observe(Kind{"a", cluster.Burstable}, []Kind{{"b", cluster.Burstable}}, 0.7, 0.05)
	b.Tell("a", Alone{Rate: 3, Busy: 0.5, Source: Declared})
	good, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	edit := func(old, other string) string {
		s := strings.Replace(string(good), old, other, 1)
		if s == string(good) {
			t.Fatalf("%s is not in %s", old, good)
		}
		return s
	}
	for name, text := range map[string]string{
		"empty": "", "null": "null", "list": "[]", "cut": string(good[:len(good)/2]), "more": string(good) + "{}",
		"version":         edit(`"version":1`, `"version":2`),
		"no version":      edit(`"version":1,`, ``),
		"kind out of it":  edit(`"i":1`, `"i":9`),
		"negative kind":   edit(`"i":1`, `"i":-1`),
		"variance of 0":   edit(`"variance":0.`, `"variance":0,"x":0.`),
		"negative mean":   edit(`"mean":0.`, `"mean":-0.`),
		"infinite":        edit(`"seen":1`, `"seen":1e999`),
		"seen 0":          edit(`"seen":1`, `"seen":0`),
		"class":           edit(`"class":"burstable"`, `"class":"best"`),
		"twice":           edit(`"key":"b","class"`, `"key":"a","class"`),
		"busy share of 7": edit(`"told_busy":0.5`, `"told_busy":7`),
		"told by a fool":  edit(`"told_by":"declared"`, `"told_by":"fool"`),
		"ban of none":     edit(`"bans":[]`, `"bans":[{"i":0,"l":5}]`),
		"time":            edit(`"bans":[]`, `"bans":[{"i":0,"l":1,"until":"soon"}]`),
		"pilots":          edit(`"pilots":[]`, `"pilots":[{"i":0,"l":0},{"i":0,"l":0}]`),
	} {
		if err := b.Restore([]byte(text)); err == nil {
			t.Errorf("%s: taken: %s", name, text)
		} else if name == "version" != errors.Is(err, ErrVersion) && name != "no version" && name != "null" {
			t.Errorf("%s: %v", name, err)
		}
		if again, _ := b.Encode(); !bytes.Equal(again, good) {
			t.Fatalf("%s: the book has changed", name)
		}
	}
}

// FuzzRestore: any text is taken or refused, and a book that took one works.
func FuzzRestore(f *testing.F) {
	b := New(Options{})
	b.Observe(Kind{"a", cluster.Burstable}, []Kind{{"b", cluster.BestEffort}, {"a", cluster.Burstable}}, 0.7, 0.05)
	b.Learn("a", Window{Length: 10 * time.Second, Held: time.Second, Used: time.Second, Iterations: 50, Alone: true})
	b.Ban(Kind{"a", cluster.Burstable}, Kind{"c", cluster.Guaranteed}, epoch)
	b.Review(epoch.Add(-time.Hour), []Count{{Kind{"a", cluster.Burstable}, 2, 0.6}, {Kind{"b", cluster.BestEffort}, 2, 0.1}})
	text, err := b.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		b := New(Options{})
		if b.Restore(text) != nil {
			return
		}
		kinds := []Kind{{"a", cluster.Burstable}, {"b", cluster.BestEffort}}
		b.Observe(kinds[0], kinds, 0.5, 0.05)
		b.Review(epoch, []Count{{kinds[0], 2, 0.5}, {kinds[1], 2, 0.5}})
		if mean, low, high, _ := b.Predict(kinds[0], kinds); !(0 < low && low <= mean && mean <= high && high <= 1) {
			t.Fatalf("%g <= %g <= %g", low, mean, high)
		}
		if again, err := b.Encode(); err != nil {
			t.Fatal(err)
		} else if err := New(Options{}).Restore(again); err != nil {
			t.Fatalf("%v in %s", err, again)
		}
	})
}

// TestManyKinds: what is asked for least recently is forgotten, and the rest keeps what was observed.
func TestManyKinds(t *testing.T) {
	b := New(Options{})
	known, beside := Kind{"known", cluster.Burstable}, Kind{"beside", cluster.Burstable}
	for range 5 {
		b.Observe(known, []Kind{beside}, 0.6, 0.05)
	}
	b.Ban(known, beside, epoch)
	before, _, _, _ := b.Predict(known, []Kind{beside})
	for n := range 3 * maxFacts {
		k := Kind{fmt.Sprint("user/", n), cluster.Burstable}
		b.Tell(k.Key, Alone{Busy: 0.5, Source: Declared})
		if n%16 == 0 {
			b.Config(k)
			b.Config(known)
			b.Config(beside)
		}
	}
	if after, _, _, basis := b.Predict(known, []Kind{beside}); after != before || basis != "observed" || !b.Banned(known, beside) || !math.IsInf(added(b, known, beside), 1) {
		t.Errorf("%g becomes %g, %s", before, after, basis)
	}
	if len(b.facts) > maxFacts || len(b.rows) > maxRows || b.Safe().Len() != len(b.rows) {
		t.Errorf("%d keys, %d rows, %d in the table", len(b.facts), len(b.rows), b.Safe().Len())
	}
	text, err := b.Encode()
	if err != nil || New(Options{}).Restore(text) != nil {
		t.Errorf("%d bytes cannot be restored: %v", len(text), err)
	}
}

// TestUnknownKindsAreOne: a thousand kinds of which nothing is known take one row for each class.
func TestUnknownKindsAreOne(t *testing.T) {
	b := New(Options{})
	for n := range 1000 {
		b.Config(Kind{fmt.Sprint("user/", n), cluster.Class(n % 3)})
	}
	if got := b.Safe().Len(); got != 3 {
		t.Errorf("%d rows", got)
	}
	if c := b.Config(Kind{"", cluster.Burstable}); c.Model != "" {
		t.Errorf("no key is named %v", c)
	}
	var jobs []Count
	for n := range 1000 {
		jobs = append(jobs, Count{Kind{fmt.Sprint("user/", n), cluster.Burstable}, 1, 0.3})
	}
	if got := b.crowds(jobs); len(got) != 1 || got[0].jobs != 1000 {
		t.Errorf("%+v", got)
	}
	before := b.Config(Kind{"user/1", cluster.Burstable})
	b.Tell("user/1", Alone{Busy: 0.3, Source: Declared})
	if after := b.Config(Kind{"user/1", cluster.Burstable}); after == before {
		t.Error("a kind of which something is known is still among the unknown")
	}
}

// TestCoverage: after any number of windows a rate is at or above its low bound as often as Coverage says, wherever it is
// against its prediction.
func TestCoverage(t *testing.T) {
	i, l := Kind{"i", cluster.Burstable}, Kind{"l", cluster.Burstable}
	for _, windows := range []int{1, 2, 3, 5, 10, 30} {
		r := rand.New(rand.NewPCG(1, uint64(windows)))
		held, n := 0, 2000
		for range n {
			b := New(Options{})
			busy := 0.1 + 0.9*r.Float64()
			b.Tell("i", Alone{Rate: 10, Busy: busy, Source: Declared})
			b.Tell("l", Alone{Rate: 10, Busy: busy, Source: Declared})
			mean, _, _, _ := b.Predict(i, []Kind{l})
			off := 1.2 * b.belief.Deviation(b.find(i), b.find(l)) // a fifth more than is believed
			truth := 1 / max(1, 1/mean+off*r.NormFloat64())
			for range windows {
				b.Observe(i, []Kind{l}, truth*(1+0.05*r.NormFloat64()), 0.05)
			}
			if _, low, _, _ := b.Predict(i, []Kind{l}); truth >= low {
				held++
			}
		}
		share := float64(held) / float64(n)
		t.Logf("%2d windows: %.3f at or above the low bound", windows, share)
		if share < 0.88 {
			t.Errorf("after %d windows %.3f are at or above the low bound", windows, share)
		}
	}
}
