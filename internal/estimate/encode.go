package estimate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
)

// Version is that of what Encode writes and Restore reads.
const Version = 1

// ErrVersion is of a book that another version wrote.
var ErrVersion = errors.New("written by another version")

// file is a book as it is kept. Facts and kinds are in order of use.
type file struct {
	Version int        `json:"version"`
	Facts   []factForm `json:"facts"`
	Kinds   []kindForm `json:"kinds"`
	Pairs   []pairForm `json:"pairs"` // that were observed
	Bans    []timeForm `json:"bans"`
	Pilots  []timeForm `json:"pilots"`
	Resting []timeForm `json:"resting"`
}

type factForm struct {
	Key     string        `json:"key"`
	Rate    float64       `json:"told_rate,omitempty"`
	Busy    float64       `json:"told_busy,omitempty"`
	Idle    bool          `json:"told_idle,omitempty"`
	Source  string        `json:"told_by,omitempty"`
	Speeds  []float64     `json:"speeds,omitempty"`
	Shares  []float64     `json:"busy,omitempty"`
	Shared  []float64     `json:"shared_speeds,omitempty"`
	Taken   []float64     `json:"shared_busy,omitempty"`
	Windows int           `json:"windows,omitempty"`
	Unused  time.Duration `json:"unused_ns,omitempty"`
}

type kindForm struct {
	Key   string `json:"key"`
	Class string `json:"class"`
}

// pairForm is what l adds to i, by their places among the kinds.
type pairForm struct {
	I             int     `json:"i"`
	L             int     `json:"l"`
	PriorMean     float64 `json:"prior_mean"`
	PriorVariance float64 `json:"prior_variance"`
	PriorCounts   float64 `json:"prior_counts"`
	Mean          float64 `json:"mean"`
	Variance      float64 `json:"variance"`
	Seen          int     `json:"seen"`
}

// timeForm is a pair of kinds and a time.
type timeForm struct {
	I       int       `json:"i"`
	L       int       `json:"l"`
	Until   time.Time `json:"until,omitzero"`
	Forever bool      `json:"forever,omitempty"`
}

// Encode writes down all that was learned, for Restore. What was not observed is not in it: it follows from the rest.
func (b *Book) Encode() ([]byte, error) {
	for key := range b.facts {
		for class := range classes {
			if i, ok := b.index[Kind{key, class}]; ok && b.rows[i].basis != b.facet(key) {
				b.soil(key)
			}
		}
	}
	b.refresh()
	f := file{Version: Version, Facts: []factForm{}, Kinds: []kindForm{}, Pairs: []pairForm{}}
	for _, key := range b.byUse() {
		x := b.facts[key]
		f.Facts = append(f.Facts, factForm{key, x.told.Rate, x.told.Busy, x.told.Idle, x.told.Source, x.speed, x.busy, x.shared, x.taken, x.windows, x.idle})
	}
	order := make([]int, len(b.rows))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Compare(b.rows[x].touched, b.rows[y].touched) })
	place := map[Kind]int{}
	for n, i := range order {
		k := b.rows[i].kind
		place[k] = n
		f.Kinds = append(f.Kinds, kindForm{k.Key, k.Class.String()})
		for m, l := range order {
			if b.belief.Seen(i, l) > 0 {
				x := b.belief.Know(i, l)
				f.Pairs = append(f.Pairs, pairForm{n, m, x.PriorMean, x.PriorVariance, x.PriorCounts, x.Mean, x.Variance, x.Seen})
			}
		}
	}
	f.Bans = times(b.bans, place, func(until time.Time) timeForm { return timeForm{Until: until.UTC().Round(0)} })
	f.Pilots = times(b.pilots, place, func(x pilot) timeForm { return timeForm{Until: x.until.UTC().Round(0)} })
	f.Resting = times(b.resting, place, func(x resting) timeForm { return timeForm{Until: x.until.UTC().Round(0), Forever: x.forever} })
	return json.Marshal(f)
}

// times lists pairs of kinds in order.
func times[T any](of map[pair]T, place map[Kind]int, form func(T) timeForm) []timeForm {
	list := []timeForm{}
	for _, p := range slices.SortedFunc(maps.Keys(of), pair.compare) {
		x := form(of[p])
		x.I, x.L = place[p.a], place[p.b]
		list = append(list, x)
	}
	return list
}

// Restore replaces what a book knows by what Encode wrote. An error says what is wrong with the text and leaves the book as
// it was; it is ErrVersion where another version wrote it. Pairs are predicted anew by the options of this book.
func (b *Book) Restore(text []byte) error {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("what was learned of jobs: %w", err)
	}
	if f.Version != Version {
		return fmt.Errorf("what was learned of jobs: version %d, want %d: %w", f.Version, Version, ErrVersion)
	}
	n := New(b.o)
	if err := n.fill(&f); err != nil {
		return fmt.Errorf("what was learned of jobs: %w", err)
	}
	n.learned = b.learned
	*b = *n
	return nil
}

// fill reads a file into an empty book.
func (b *Book) fill(f *file) error {
	if len(f.Facts) > maxFacts || len(f.Kinds) > maxRows {
		return fmt.Errorf("%d keys and %d kinds are too many", len(f.Facts), len(f.Kinds))
	}
	for i := range f.Facts {
		if err := b.fillFact(&f.Facts[i]); err != nil {
			return fmt.Errorf("facts %d: %w", i, err)
		}
	}
	for i, x := range f.Kinds {
		class, ok := cluster.ParseClass(x.Class)
		k := Kind{x.Key, class}
		if _, twice := b.index[k]; !ok || twice || k.Key != "" && !k.named() {
			return fmt.Errorf("kind %d is none, or there twice", i)
		}
		b.grow(k)
	}
	for i, x := range f.Pairs {
		if !b.has(x.I) || !b.has(x.L) || !x.possible() || b.belief.Seen(x.I, x.L) > 0 {
			return fmt.Errorf("pair %d cannot be, or is there twice", i)
		}
		b.belief.Recall(x.I, x.L, interference.Knowledge{PriorMean: x.PriorMean, PriorVariance: x.PriorVariance, PriorCounts: x.PriorCounts, Mean: x.Mean, Variance: x.Variance, Seen: x.Seen})
	}
	bans, err := fillTimes(b, f.Bans, func(x timeForm) time.Time { return x.Until })
	if err != nil {
		return fmt.Errorf("bans: %w", err)
	}
	pilots, err := fillTimes(b, f.Pilots, func(x timeForm) pilot { return pilot{x.Until} })
	if err != nil || len(pilots) > maxPilots {
		return fmt.Errorf("pilots: too many, or %w", cmp.Or(err, errPair))
	}
	rests, err := fillTimes(b, f.Resting, func(x timeForm) resting { return resting{x.Until, x.Forever} })
	if err != nil {
		return fmt.Errorf("resting: %w", err)
	}
	b.resume(bans, pilots, rests)
	b.refresh()
	return nil
}

func (b *Book) has(row int) bool { return row >= 0 && row < len(b.rows) }

// Bounds of what a belief can be.
const (
	mostMean     = 1e4
	mostVariance = 1e9
	leastSpread  = 1e-9
	mostSeen     = 1 << 40
)

// possible says whether a belief is one.
func (x pairForm) possible() bool {
	mean := func(v float64) bool { return v >= 0 && v <= mostMean }
	variance := func(v float64) bool { return v >= leastSpread && v <= mostVariance }
	return mean(x.PriorMean) && mean(x.Mean) && variance(x.PriorVariance) && variance(x.PriorCounts) && variance(x.Variance) && x.Seen > 0 && x.Seen < mostSeen
}

// errPair is of a pair of kinds that there is not.
var errPair = errors.New("a pair of kinds that there is not, or twice")

func fillTimes[T any](b *Book, list []timeForm, of func(timeForm) T) (map[pair]T, error) {
	out := map[pair]T{}
	for _, x := range list {
		if !b.has(x.I) || !b.has(x.L) {
			return nil, errPair
		}
		p := pairOf(b.rows[x.I].kind, b.rows[x.L].kind)
		if _, twice := out[p]; twice {
			return nil, errPair
		}
		out[p] = of(x)
	}
	return out, nil
}

func (b *Book) fillFact(x *factForm) error {
	if _, twice := b.facts[x.Key]; twice || !(Kind{Key: x.Key}).named() {
		return fmt.Errorf("key %q is none, or there twice", x.Key)
	}
	if x.Windows < 0 || x.Unused < 0 || x.Unused > idleAfter+longest || x.Source != "" && x.Source != Declared && x.Source != Catalogue {
		return errors.New("figures that cannot be")
	}
	for _, list := range [][]float64{x.Speeds, x.Shared} {
		if !within(list, leastSpeed, largestRate) {
			return errors.New("speeds that cannot be")
		}
	}
	for _, list := range [][]float64{x.Shares, x.Taken} {
		if !within(list, leastBusy, 1) {
			return errors.New("busy shares that cannot be")
		}
	}
	if x.Rate != 0 && !within([]float64{x.Rate}, leastSpeed, largestRate) || x.Busy != 0 && !within([]float64{x.Busy}, leastBusy, 1) {
		return errors.New("told figures that cannot be")
	}
	f := b.fact(x.Key)
	f.told = Alone{Rate: x.Rate, Busy: x.Busy, Idle: x.Idle, Source: x.Source}
	f.speed, f.busy, f.shared, f.taken = x.Speeds, x.Shares, x.Shared, x.Taken
	f.windows, f.idle = x.Windows, x.Unused
	return nil
}

// within says whether samples are no more than there are kept, and in bounds.
func within(list []float64, least, most float64) bool {
	return len(list) <= keep && !slices.ContainsFunc(list, func(v float64) bool { return !(v >= least && v <= most) })
}
