package profile

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/unit"
)

// roundOff is the rounding of sums of some thousand products of fractions.
const roundOff = 1e-9

// grains multiply small numbers of bytes: 1 keeps many sums equal; the prime makes almost all sums differ, so that a
// load must merge levels; the last brings sums near the end of the range.
var grains = []unit.Bytes{1, 1_000_003, math.MaxInt64 / 80}

func drawGrain(t *rapid.T) unit.Bytes { return rapid.SampledFrom(grains).Draw(t, "grain") }

// drawProfile has levels that no named shape has: few or many, uneven in bytes and in fraction.
func drawProfile(t *rapid.T, grain unit.Bytes) Profile {
	if rapid.Bool().Draw(t, "named") {
		shape, _ := NamedShape(rapid.SampledFrom(ShapeNames()).Draw(t, "shape"))
		persistent := grain * unit.Bytes(rapid.IntRange(0, 8).Draw(t, "persistent"))
		return New(persistent, persistent.Add(grain*unit.Bytes(rapid.IntRange(0, 9).Draw(t, "ephemeral"))), shape)
	}
	p := Profile{Persistent: grain * unit.Bytes(rapid.IntRange(0, 8).Draw(t, "persistent"))}
	bytes := rapid.SliceOfNDistinct(rapid.IntRange(0, 9), 1, 8, rapid.ID[int]).Draw(t, "levels")
	slices.Sort(bytes)
	weights, sum := make([]float64, len(bytes)), 0.0
	for i := range weights {
		weights[i] = rapid.Float64Range(0.01, 1).Draw(t, "weight")
		sum += weights[i]
	}
	for i, b := range bytes {
		p.Ephemeral = append(p.Ephemeral, Level{grain*unit.Bytes(b) + unit.Bytes(i), weights[i] / sum})
	}
	return p
}

func drawProfiles(t *rapid.T, most int) []Profile {
	grain := drawGrain(t)
	profiles := make([]Profile, rapid.IntRange(1, most).Draw(t, "profiles"))
	for i := range profiles {
		profiles[i] = drawProfile(t, grain)
	}
	return profiles
}

// valid checks what every profile must be.
func valid(t *rapid.T, p Profile) {
	t.Helper()
	mass, last := 0.0, unit.Bytes(-1)
	for _, l := range p.Ephemeral {
		if l.Bytes <= last || l.Fraction <= 0 {
			t.Fatalf("level %v follows %d bytes", l, last)
		}
		mass, last = mass+l.Fraction, l.Bytes
	}
	if len(p.Ephemeral) > 0 && math.Abs(mass-1) > roundOff {
		t.Fatalf("fractions sum to %v", mass)
	}
	if p.Persistent < 0 || p.Peak() < p.Persistent {
		t.Fatalf("persistent %d, peak %d", p.Persistent, p.Peak())
	}
}

// exact is the probability that the profiles want more than capacity together, from every combination of levels. Their
// sums must not saturate.
func exact(profiles []Profile, held, capacity unit.Bytes) float64 {
	if len(profiles) == 0 {
		if held > capacity {
			return 1
		}
		return 0
	}
	held += profiles[0].Persistent
	if len(profiles[0].Ephemeral) == 0 {
		return exact(profiles[1:], held, capacity)
	}
	sum := 0.0
	for _, l := range profiles[0].Ephemeral {
		sum += l.Fraction * exact(profiles[1:], held+l.Bytes, capacity)
	}
	return sum
}

func peakOf(profiles []Profile) unit.Bytes {
	peak := unit.Bytes(0)
	for _, p := range profiles {
		peak = peak.Add(p.Peak())
	}
	return peak
}

// TestLoadBrackets: the exact probability lies between LeastOverflow and Overflow, however much was merged.
func TestLoadBrackets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		profiles := drawProfiles(t, 4)
		peak := peakOf(profiles)
		capacity := unit.FromMiB(rapid.Float64Range(0, 1.05).Draw(t, "share of the peak") * peak.MiB())
		last := len(profiles) - 1
		var load Load
		for _, p := range profiles[:last] {
			load = load.Add(p)
			valid(t, load.sum)
			if n := len(load.sum.Ephemeral); n > maxLevels {
				t.Fatalf("%d levels", n)
			}
		}
		want := exact(profiles, 0, capacity)
		if got := load.Overflow(profiles[last], capacity); got < want-roundOff || got > 1 {
			t.Fatalf("overflow %v, exact %v", got, want)
		}
		if got := load.LeastOverflow(profiles[last], capacity); got > want+roundOff || got < 0 {
			t.Fatalf("least overflow %v, exact %v", got, want)
		}
		if got := Overflow(profiles, capacity); math.Abs(got-want) > roundOff {
			t.Fatalf("overflow by definition %v, exact %v", got, want)
		}
	})
}

// TestOverflowEnds: exactly 0 while all peaks fit, and 1 as soon as what is always held does not.
func TestOverflowEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		profiles := drawProfiles(t, 4)
		last := len(profiles) - 1
		var load Load
		held := profiles[last].Persistent
		for _, p := range profiles[:last] {
			load = load.Add(p)
			held = held.Add(p.Persistent)
		}
		peak := peakOf(profiles)
		if got := load.Overflow(profiles[last], peak); got != 0 {
			t.Errorf("overflow %v at the peak", got)
		}
		if got := Overflow(profiles, peak); got != 0 {
			t.Errorf("overflow by definition %v at the peak", got)
		}
		if held > 0 {
			if got := load.Overflow(profiles[last], held-1); got != 1 {
				t.Errorf("overflow %v below what is held", got)
			}
		}
		sum := load.Add(profiles[last])
		if sum.Peak() != peak || sum.Persistent() != held {
			t.Errorf("load of %d to %d bytes, want %d to %d", sum.Persistent(), sum.Peak(), held, peak)
		}
		mean := 0.0
		for _, p := range profiles {
			mean += p.Mean()
		}
		if sum.Mean() < mean*(1-roundOff) || sum.Mean() > (mean+float64(sum.rounded))*(1+roundOff) {
			t.Errorf("mean %v, of the profiles together %v, rounded by up to %v", sum.Mean(), mean, sum.rounded)
		}
	})
}

// TestOverflowOfManyStates: with more combinations than it looks at, Overflow is Load's, which merges levels and errs on
// the safe side, by little.
func TestOverflowOfManyStates(t *testing.T) {
	shape, _ := NamedShape("training-categorised")
	var profiles []Profile
	var load Load
	for i := range unit.Bytes(6) { // 12^6 combinations
		profiles = append(profiles, New(unit.GiB, 2*unit.GiB+i*unit.MiB, shape))
		if i < 5 {
			load = load.Add(profiles[i])
		}
	}
	if load.rounded == 0 || load.rounded > 64*unit.MiB {
		t.Errorf("merging rounded by %v", load.rounded)
	}
	for _, capacity := range []unit.Bytes{8 * unit.GiB, 10 * unit.GiB, 11 * unit.GiB} {
		want := exact(profiles, 0, capacity)
		got := Overflow(profiles, capacity)
		if got < want-roundOff || got > want+0.05 || got != load.Overflow(profiles[5], capacity) {
			t.Errorf("overflow of %v is %v, exact %v", capacity, got, want)
		}
		if least := load.LeastOverflow(profiles[5], capacity); least > want+roundOff || least < want-0.05 {
			t.Errorf("least overflow of %v is %v, exact %v", capacity, least, want)
		}
	}
}

// TestNewRoundsUp: at every share of time the profile holds at least what the shape says, and its peak is the peak.
func TestNewRoundsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(ShapeNames()).Draw(t, "shape")
		shape, _ := NamedShape(name)
		bytes := rapid.Custom(func(t *rapid.T) unit.Bytes {
			return unit.Bytes(rapid.Int64Range(0, math.MaxInt64>>rapid.IntRange(0, 60).Draw(t, "shift")).Draw(t, "bytes"))
		})
		persistent, peak := bytes.Draw(t, "persistent"), bytes.Draw(t, "peak")
		p := New(persistent, peak, shape)
		valid(t, p)
		if p.Peak() != max(persistent, peak) {
			t.Fatalf("peak %d, want %d", p.Peak(), max(persistent, peak))
		}
		if len(p.Ephemeral) == 0 {
			return
		}
		if p.Persistent != persistent {
			t.Fatalf("persistent %d, want %d", p.Persistent, persistent)
		}
		n, all, below := len(shape), float64(peak-persistent), 0.0
		for i, fraction := range shape {
			edge := all * float64(i+1) / float64(n)
			got := float64(p.Ephemeral[slices.IndexFunc(p.Ephemeral, func(l Level) bool { return float64(l.Bytes) >= edge*(1-1e-15) })].Bytes)
			if got > edge*(1+1e-15)+1 {
				t.Fatalf("level %d is %v, want the edge %v", i, got, edge)
			}
			below += fraction
			if held := 1 - tail(p.Ephemeral, unit.Bytes(edge*(1-1e-15))-1); i < n-1 && held > below+roundOff {
				t.Fatalf("%v of the time less than level %d of %v, the shape says %v", held, i, edge, below)
			}
		}
	})
}

func TestNewOfLittle(t *testing.T) {
	shape := Shape{0.5, 0, 0.5}
	for _, c := range []struct {
		persistent, peak unit.Bytes
		shape            Shape
		want             Profile
	}{
		{0, 0, shape, Profile{}},
		{5, 5, shape, Profile{Persistent: 5}},
		{5, 2, shape, Profile{Persistent: 5}},
		{5, 9, nil, Profile{Persistent: 9}},
		{5, 9, Shape{}, Profile{Persistent: 9}},
		{0, 9, shape, Profile{0, []Level{{3, 0.5}, {9, 0.5}}}},
		{1, 8, shape, Profile{1, []Level{{3, 0.5}, {7, 0.5}}}}, // 7/3 rounds up
		{0, 1, shape, Profile{0, []Level{{1, 1}}}},             // fewer bytes than levels
		{4, 6, Shape{0.25, 0.25, 0.5}, Profile{4, []Level{{1, 0.25}, {2, 0.75}}}},
	} {
		if got := New(c.persistent, c.peak, c.shape); got.Compare(c.want) != 0 {
			t.Errorf("New(%d, %d, %v) = %v, want %v", c.persistent, c.peak, c.shape, got, c.want)
		}
	}
	if p := New(1, 8, shape); p.AtPeak().Compare(Flat(8)) != 0 || p.Mean() != 1+1.5+3.5 {
		t.Errorf("at its peak %v, mean %v", p.AtPeak(), p.Mean())
	}
}

// atMost is P[p <= b].
func atMost(p Profile, b unit.Bytes) float64 { return 1 - exact([]Profile{p}, 0, b) }

// TestEnvelopes: at every number of bytes the distribution function of the dominating profile is at most that of each
// profile, and that of the dominated one at least; and neither is further off than it must be.
func TestEnvelopes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		grain := rapid.SampledFrom(grains[:2]).Draw(t, "grain")
		profiles := make([]Profile, rapid.IntRange(1, 4).Draw(t, "profiles"))
		for i := range profiles {
			profiles[i] = drawProfile(t, grain)
		}
		above, below := Dominating(profiles), Dominated(profiles)
		valid(t, above)
		valid(t, below)
		var steps []unit.Bytes
		for _, p := range append([]Profile{above, below}, profiles...) {
			steps = append(steps, p.Persistent-1, p.Persistent)
			for _, l := range p.Ephemeral {
				steps = append(steps, p.Persistent+l.Bytes-1, p.Persistent+l.Bytes)
			}
		}
		for _, b := range steps {
			least, most := 1.0, 0.0
			for _, p := range profiles {
				least, most = min(least, atMost(p, b)), max(most, atMost(p, b))
			}
			if got := atMost(above, b); math.Abs(got-least) > roundOff {
				t.Fatalf("dominating: P[at most %d] = %v, the least of the profiles %v", b, got, least)
			}
			if got := atMost(below, b); got < most-roundOff {
				t.Fatalf("dominated: P[at most %d] = %v, the most of the profiles %v", b, got, most)
			}
		}
	})
}

func TestCompareIsATotalOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProfiles(t, 3)
		for len(p) < 3 {
			p = append(p, p[0])
		}
		if same := p[0]; p[0].Compare(same) != 0 || p[0].Compare(p[1]) != -p[1].Compare(p[0]) {
			t.Fatal("not antisymmetric")
		}
		slices.SortFunc(p, Profile.Compare)
		if p[0].Compare(p[2]) > 0 || p[0].Compare(p[2]) != cmp.Or(p[0].Compare(p[1]), p[1].Compare(p[2])) {
			t.Fatalf("not transitive: %v", p)
		}
		if p[0].Compare(p[1]) == 0 && (p[0].Persistent != p[1].Persistent || !slices.Equal(p[0].Ephemeral, p[1].Ephemeral)) {
			t.Fatalf("%v and %v compare as equal", p[0], p[1])
		}
	})
}
