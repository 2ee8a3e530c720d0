package covering

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/placement/matching"
)

// verify checks what Solve and Round promise for every problem.
func verify(t rapid.TB, p Problem, s *Solution, configs [][]int) {
	t.Helper()
	count := make([]int, len(p.Demand))
	for _, c := range configs {
		if len(c) == 0 || len(c) > p.MaxSize || !slices.IsSorted(c) || !p.Fits(c) {
			t.Fatalf("configuration %v", c)
		}
		for _, i := range c {
			count[i]++
		}
	}
	if !slices.Equal(count, p.Demand) {
		t.Fatalf("covered %v of %v", count, p.Demand)
	}
	if len(configs) > int(math.Ceil(s.Value-integral))+len(p.Demand) {
		t.Fatalf("%d configurations for a value of %v", len(configs), s.Value)
	}
	if s.Bound > s.Value || float64(len(configs)) < s.Bound {
		t.Fatalf("bound %v, value %v, %d configurations", s.Bound, s.Value, len(configs))
	}
	if s.Optimal && s.Value-s.Bound > 1e-6*(1+s.Value) {
		t.Fatalf("optimal, with bound %v and value %v", s.Bound, s.Value)
	}
	covered, dual := make([]float64, len(p.Demand)), 0.0
	for j, c := range s.Columns {
		if !p.Fits(c) || s.Weights[j] <= 0 {
			t.Fatalf("column %v of weight %v", c, s.Weights[j])
		}
		for _, i := range c {
			covered[i] += s.Weights[j]
		}
	}
	for i, d := range p.Demand {
		if covered[i] < float64(d)-1e-6 {
			t.Fatalf("weights cover %v of %d of type %d", covered[i], d, i)
		}
		if s.Duals[i] < 0 {
			t.Fatalf("dual %v of type %d", s.Duals[i], i)
		}
		dual += s.Duals[i] * float64(d)
	}
	if math.Abs(dual-s.Bound) > 1e-7*(1+s.Bound) {
		t.Fatalf("the duals prove %v, the bound is %v", dual, s.Bound)
	}
}

func randomSlowdowns(types, copies, size int, least, floor float64, seed uint64) Problem {
	rng := rand.New(rand.NewPCG(seed, 9))
	added := make([][]float64, types)
	for i := range added {
		for range types {
			added[i] = append(added[i], 1/(least+(1-least)*rng.Float64())-1)
		}
	}
	return slowdowns(types, copies, size, floor, func(i, l int) float64 { return added[i][l] })
}

// forbidden is a problem in which random pairs and triples must not occur together, whatever else is beside them.
func forbidden(types, most, size int, rng *rand.Rand) Problem {
	p := Problem{MaxSize: size}
	for range types {
		p.Demand = append(p.Demand, rng.IntN(most+1))
	}
	pairs, triples := rng.Float64(), rng.Float64()
	bad := map[[3]int]bool{}
	for a := range types {
		for b := a; b < types; b++ {
			bad[[3]int{a, b, -1}] = rng.Float64() < pairs
			for c := b; c < types; c++ {
				bad[[3]int{a, b, c}] = rng.Float64() < triples
			}
		}
	}
	p.Fits = func(config []int) bool {
		for i, a := range config {
			for k, b := range config[i+1:] {
				if bad[[3]int{a, b, -1}] {
					return false
				}
				for _, c := range config[i+k+2:] {
					if bad[[3]int{a, b, c}] {
						return false
					}
				}
			}
		}
		return true
	}
	p.Penalty = func(config []int) float64 {
		cost := 0.0
		for _, t := range config {
			cost += float64(len(config)*(t+1)) / 3
		}
		return cost
	}
	return p
}

// strict wraps Fits to check what Solve and Round promise about its calls.
func strict(t rapid.TB, p Problem) Problem {
	fits := p.Fits
	p.Fits = func(config []int) bool {
		count := map[int]int{}
		for i, a := range config {
			count[a]++
			for _, b := range config[i+1:] {
				if len(config) > 2 && !fits([]int{a, b}) {
					t.Fatalf("asked about %v though %d and %d may not share", config, a, b)
				}
			}
			if count[a] > p.Demand[a] {
				t.Fatalf("asked about %v for a demand of %v", config, p.Demand)
			}
		}
		if len(config) == 0 || len(config) > p.MaxSize || !slices.IsSorted(config) {
			t.Fatalf("asked about %v, at most %d items", config, p.MaxSize)
		}
		return fits(config)
	}
	return p
}

func draw(t *rapid.T, types, most int) Problem {
	types -= rapid.IntRange(0, types-1).Draw(t, "types left out")
	size := rapid.IntRange(1, 4).Draw(t, "size")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
	if rapid.Bool().Draw(t, "slowdowns") {
		p := randomSlowdowns(types, 1, size, 0.5+rng.Float64()/2, 0.8, rng.Uint64())
		for i := range p.Demand {
			p.Demand[i] = rng.IntN(most + 1)
		}
		return p
	}
	return forbidden(types, most, size, rng)
}

func solveAndRound(t rapid.TB, p Problem) (*Solution, [][]int) {
	t.Helper()
	s, err := Solve(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	configs := Round(p, s, 0)
	verify(t, p, s, configs)
	return s, configs
}

// enumerate lists all configurations that fit and hold no type more often than its demand.
func enumerate(p Problem) (all [][]int) {
	var extend func(config []int)
	extend = func(config []int) {
		first := 0
		if len(config) > 0 {
			all = append(all, slices.Clone(config))
			first = config[len(config)-1]
		}
		for t := first; t < len(p.Demand) && len(config) < p.MaxSize; t++ {
			larger := append(slices.Clone(config), t)
			if column := columnOf(larger); column.repeats(len(config)) < p.Demand[t] && p.Fits(larger) {
				extend(larger)
			}
		}
	}
	extend(nil)
	return all
}

// enumerationBound is the relaxation's value by gonum: its dual over all configurations, max d y, S y + slack = 1.
func enumerationBound(t rapid.TB, p Problem) float64 {
	t.Helper()
	all := enumerate(p)
	if len(all) == 0 {
		return 0
	}
	types := len(p.Demand)
	cost := make([]float64, types+len(all))
	for i, d := range p.Demand {
		cost[i] = -float64(d)
	}
	a := mat.NewDense(len(all), len(cost), nil)
	b := make([]float64, len(all))
	basis := make([]int, len(all))
	for r, config := range all {
		for _, i := range config {
			a.Set(r, i, a.At(r, i)+1)
		}
		a.Set(r, types+r, 1)
		b[r], basis[r] = 1, types+r
	}
	for i, d := range p.Demand {
		if d == 0 { // in no configuration: keep its dual bounded
			a.Set(0, i, 1)
		}
	}
	value, _, err := lp.Simplex(cost, a, b, 1e-10, basis)
	if err != nil {
		t.Fatalf("gonum: %v", err)
	}
	return -value
}

func TestBoundEqualsFullEnumeration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t, 6, 5)
		s, _ := solveAndRound(t, strict(t, p))
		if want := enumerationBound(t, p); !s.Optimal || s.Bound > want+1e-9 || s.Bound < want-1e-6 || s.Value > want+1e-6 {
			t.Fatalf("bound %v, value %v, optimal %v; all configurations give %v", s.Bound, s.Value, s.Optimal, want)
		}
	})
}

// optimum is the least number of configurations, by dynamic programming over demands.
func optimum(p Problem) int {
	all := enumerate(p)
	memo := map[string]int{}
	var best func(left []int) int
	best = func(left []int) int {
		first := slices.IndexFunc(left, func(d int) bool { return d > 0 })
		if first < 0 {
			return 0
		}
		key := fmt.Sprint(left)
		if n, ok := memo[key]; ok {
			return n
		}
		least := math.MaxInt
		for _, config := range all {
			if config[0] != first { // some configuration holds the first item left, and no earlier type is left
				continue
			}
			rest, ok := slices.Clone(left), true
			for _, i := range config {
				rest[i]--
				ok = ok && rest[i] >= 0
			}
			if ok {
				least = min(least, 1+best(rest))
			}
		}
		memo[key] = least
		return least
	}
	return best(p.Demand)
}

func TestRoundAgainstOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t, 5, 3)
		s, configs := solveAndRound(t, strict(t, p))
		if want := optimum(p); s.Bound > float64(want) || len(configs) < want || len(configs) > want+1 {
			t.Fatalf("bound %v, rounded %d, optimum %d", s.Bound, len(configs), want)
		}
	})
}

// One off is allowed to a rounding, but must be rare.
func TestRoundMostlyOptimal(t *testing.T) {
	missed := 0
	const problems = 200
	for seed := range uint64(problems) {
		rng := rand.New(rand.NewPCG(seed, 11))
		p := forbidden(5+rng.IntN(3), 3, 3, rng)
		if _, configs := solveAndRound(t, p); len(configs) > optimum(p) {
			missed++
		}
	}
	t.Logf("%d of %d one above the optimum", missed, problems)
	if missed > problems/50 {
		t.Error("more than one in fifty")
	}
}

// With at most two items in a configuration the optimum is a matching.
func TestPairsAgainstMatching(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 13))
		p := randomSlowdowns(20+rng.IntN(30), 1+rng.IntN(5), 2, 0.5, 0.85, seed)
		s, configs := solveAndRound(t, p)
		var kind []int
		for i, d := range p.Demand {
			kind = append(kind, slices.Repeat([]int{i}, d)...)
		}
		var edges []matching.Edge
		for u := range kind {
			for v := range u {
				if p.Fits([]int{kind[v], kind[u]}) {
					edges = append(edges, matching.Edge{U: u, V: v})
				}
			}
		}
		want := len(kind)
		for v, w := range matching.Maximum(len(kind), edges) {
			if w > v {
				want--
			}
		}
		if s.Bound > float64(want) || len(configs) < want || len(configs) > want+1 {
			t.Errorf("seed %d: bound %v, rounded %d, exact %d", seed, s.Bound, len(configs), want)
		}
	}
}

func TestDegenerate(t *testing.T) {
	always := func([]int) bool { return true }
	alone := func(config []int) bool { return len(config) < 2 }
	for _, c := range []struct {
		name   string
		p      Problem
		bound  float64
		rounds int
	}{
		{"nothing", Problem{MaxSize: 3, Fits: always}, 0, 0},
		{"no demand", Problem{Demand: []int{0, 0}, MaxSize: 3, Fits: always}, 0, 0},
		{"one type", Problem{Demand: []int{7}, MaxSize: 3, Fits: always}, 7. / 3, 3},
		{"one item", Problem{Demand: []int{0, 1, 0}, MaxSize: 4, Fits: always}, 1, 1},
		{"size one", Problem{Demand: []int{3, 0, 5}, MaxSize: 1, Fits: always}, 8, 8},
		{"nothing may share", Problem{Demand: []int{3, 2, 5}, MaxSize: 4, Fits: alone}, 10, 10},
		{"everything may share", Problem{Demand: slices.Repeat([]int{1}, 90), MaxSize: 4, Fits: always}, 22.5, 23},
		{"size beyond the items", Problem{Demand: []int{1, 1, 1}, MaxSize: 50, Fits: always}, 1, 1},
		{"many copies", Problem{Demand: []int{100_001, 7}, MaxSize: 4, Fits: always}, 25002, 25002},
		{"large everything", Problem{Demand: slices.Repeat([]int{8}, 200), MaxSize: 8, Fits: always}, 200, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, configs := solveAndRound(t, c.p)
			if math.Abs(s.Bound-c.bound) > 1e-6*(1+c.bound) || !s.Optimal || len(configs) != c.rounds {
				t.Errorf("bound %v, optimal %v, rounded %d; want %v and %d", s.Bound, s.Optimal, len(configs), c.bound, c.rounds)
			}
		})
	}
}

func TestContract(t *testing.T) {
	always := func([]int) bool { return true }
	for name, p := range map[string]Problem{
		"size":     {Demand: []int{1}, Fits: always},
		"no rule":  {Demand: []int{1}, MaxSize: 2},
		"negative": {Demand: []int{1, -1}, MaxSize: 2, Fits: always},
		"misfit":   {Demand: []int{1, 1}, MaxSize: 2, Fits: func(c []int) bool { return c[0] != 1 }},
		"too many": {Demand: []int{math.MaxInt}, MaxSize: 2, Fits: always},
	} {
		if _, err := Solve(p, 0); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// However early the budget ends, plan and bound stay valid.
func TestBudget(t *testing.T) {
	p := randomSlowdowns(30, 5, 4, 0.8, 0.85, 3)
	full, _ := solveAndRound(t, p)
	stopped := 0
	for steps := 1; steps < 10_000_000; steps *= 3 {
		s, err := Solve(p, steps)
		if err != nil {
			t.Fatal(err)
		}
		for _, rest := range []int{1, steps} {
			verify(t, p, s, Round(p, s, rest))
		}
		if s.Bound > full.Bound*(1+1e-8) || s.Value < full.Value*(1-1e-8) {
			t.Errorf("%d steps: bound %v, value %v, of %v", steps, s.Bound, s.Value, full.Bound)
		}
		if !s.Optimal {
			stopped++
		}
	}
	if stopped < 3 {
		t.Errorf("only %d budgets were too small", stopped)
	}
}

func TestSameProblemSameResult(t *testing.T) {
	for seed := range uint64(3) {
		p := randomSlowdowns(25, 3, 4, 0.7, 0.85, seed)
		first, configs := solveAndRound(t, p)
		second, again := solveAndRound(t, p)
		if !reflect.DeepEqual(first.Weights, second.Weights) || !reflect.DeepEqual(first.Columns, second.Columns) ||
			!reflect.DeepEqual(configs, again) {
			t.Errorf("seed %d: two runs differ", seed)
		}
	}
}

func TestExchangeLowersPenalty(t *testing.T) {
	total := func(p Problem, list []column) (cost float64, items []int32) {
		for _, c := range list {
			cost += p.Penalty(c.ints())
			items = append(items, c...)
		}
		slices.Sort(items)
		return cost, items
	}
	lower := 0
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t, 8, 5)
		p.Penalty = nil // no exchanges yet
		_, configs := solveAndRound(t, p)
		p.Penalty = func(config []int) float64 {
			cost := 0.0
			for _, i := range config {
				cost += float64((i*7)%5+1) * float64(len(config)*len(config))
			}
			return cost
		}
		var list []column
		for _, c := range configs {
			list = append(list, columnOf(c))
		}
		before, items := total(p, list)
		exchanged := newExchange(newLattice(p), list, newBudget(0)).run()
		after, kept := total(p, exchanged)
		if len(exchanged) > len(list) || len(exchanged) == len(list) && after > before+1e-9 || !slices.Equal(items, kept) {
			t.Fatalf("%v at penalty %v, then %v at %v", list, before, exchanged, after)
		}
		if after < before {
			lower++
		}
	})
	if lower == 0 {
		t.Error("no exchange ever helped")
	}
}

// A hundred types of eight items each: the roundings stay within one per cent of the bound.
func TestRandomLarge(t *testing.T) {
	for _, least := range []float64{0.5, 0.8, 0.9} {
		s, configs, _ := report(t, randomSlowdowns(100, 8, 4, least, 0.85, 2))
		if !s.Optimal || float64(len(configs)) > 1.01*s.Bound+1 {
			t.Errorf("norms from %v: %d for a bound of %v, optimal %v", least, len(configs), s.Bound, s.Optimal)
		}
	}
}

// Many types of one item each, where diving has to fix many at once.
func TestRandomSingles(t *testing.T) {
	s, configs, _ := report(t, randomSlowdowns(150, 1, 4, 0.8, 0.85, 2))
	if !s.Optimal || float64(len(configs)) > s.Bound+2 {
		t.Errorf("%d for a bound of %v, optimal %v", len(configs), s.Bound, s.Optimal)
	}
}

func BenchmarkConfigLP(b *testing.B) {
	for _, c := range []struct {
		name  string
		types int
		least float64
	}{{"100types", 100, 0.5}, {"100types/dense", 100, 0.8}, {"300types/dense", 300, 0.8}} {
		p := randomSlowdowns(c.types, 8, 4, c.least, 0.85, 1)
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Solve(p, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRound(b *testing.B) {
	for _, c := range []struct {
		name  string
		least float64
	}{{"100types", 0.5}, {"100types/dense", 0.8}} {
		p := randomSlowdowns(100, 8, 4, c.least, 0.85, 1)
		s, err := Solve(p, 0)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				Round(p, s, 0)
			}
		})
	}
}
