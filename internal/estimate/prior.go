package estimate

import (
	"math"
	"slices"
	"strings"
	"sync"

	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/interference/model"
)

// classes is the number of classes.
const classes = cluster.BestEffort + 1

// bases are what a prediction may rest on, from weak to firm.
var bases = []string{"unknown", string(model.New), Catalogue, Declared, Shared, string(model.Probed), string(model.Known), Measured, "observed"}

// strength is the place of a basis among bases.
func strength(basis string) int {
	for i, name := range bases {
		if name == basis {
			return i
		}
	}
	return 0
}

// facet is what the priors of a kind's pairs rest on.
type facet struct {
	mean, worst use
	source      string // of the busy share; "" unknown
	config      interference.Config
	learned     bool // the predictor knows it
}

// Figures of what is not known.
const (
	unknownBusy  = 0.9  // expected of a job of which nothing is known; at worst it always has work
	unknownCycle = 0.1  // s of an iteration of a job that tells of none
	otherDoubt   = 0.08 // standard deviation of a busy share that was measured on other machines
	toldDoubt    = 0.03 // or declared
	sharedDoubt  = 0.05 // or measured beside others, however often
	aloneDoubt   = 0.02 // or alone
	sampleDoubt  = 0.1  // of one window
	idleDoubt    = 0.01 // of the slowdown by a job that uses no GPU
)

// facet reads what is known of a key.
func (b *Book) facet(key string) facet {
	x := facet{mean: use{unknownBusy, unknownCycle}, worst: use{1, unknownCycle}}
	x.config, x.learned = b.known(key)
	f := b.facts[key]
	if f == nil {
		return x
	}
	if rate, _ := f.rate(); rate > 0 {
		x.mean.cycle, x.worst.cycle = 1/rate, 1/rate
	}
	if f.never() {
		x.mean.busy, x.worst.busy, x.source = 0, 0, Measured
		return x
	}
	busy, source := f.share()
	if busy <= 0 {
		return x
	}
	doubt := otherDoubt
	switch source {
	case Declared:
		doubt = toldDoubt
	case Measured:
		doubt = aloneDoubt + sampleDoubt/math.Sqrt(float64(len(f.busy)))
	case Shared:
		doubt = sharedDoubt + sampleDoubt/math.Sqrt(float64(len(f.taken)))
	}
	x.mean.busy, x.worst.busy, x.source = busy, min(1, busy+doubt), source
	return x
}

// near says whether priors hardly differ.
func (x facet) near(y facet) bool {
	return x.source == y.source && math.Abs(x.mean.busy-y.mean.busy) < 0.01 && math.Abs(x.worst.busy-y.worst.busy) < 0.01 &&
		math.Abs(x.mean.cycle-y.mean.cycle) < 0.05*y.mean.cycle
}

// prediction is a slowdown that is expected before anything is observed.
type prediction struct {
	mean, deviation float64
	basis           int
}

// prior is what l is expected to add to i. The mean is of turns, as that is how weft shares a GPU, where both busy shares
// are known: rates of the learned predictor were measured without weft, where kernels of two jobs may overlap. Where one is
// not, a rate of these very jobs says more than a guess, and the predictor's mean counts. The bound is always the worse.
func (b *Book) prior(i, l *row) prediction {
	x, y := i.basis, l.basis
	mean, _ := b.o.turns(x.mean, y.mean, i.kind.Class, l.kind.Class)
	_, worst := b.o.turns(x.worst, y.worst, i.kind.Class, l.kind.Class)
	basis := min(strength(x.source), strength(y.source))
	if mean == 0 && worst == 0 {
		return prediction{0, idleDoubt, strength(Measured)} // one of the two uses no GPU
	}
	if x.learned && y.learned && i.kind.Class == l.kind.Class {
		if p := b.learn(x.config, y.config); p.basis > 0 {
			worst = max(worst, p.worst)
			if basis == 0 {
				mean, basis = p.mean, p.basis
			}
		}
	}
	worst = max(mean, worst)
	deviation := math.Hypot((worst-mean)/b.belief.Quantile(), least(mean, i.kind.Class, l.kind.Class))
	return prediction{mean, min(deviation, 3*(1+mean)), basis}
}

// basisOf is what the prediction of a pair rests on.
func (b *Book) basisOf(i, l int) int {
	if b.belief.Seen(i, l) >= manyTimes {
		return strength("observed")
	}
	return b.prior(b.rows[i], b.rows[l]).basis
}

// learned is what the learned predictor says of a pair: slowdowns, and the place of its basis, 0 for none.
type learned struct {
	mean, worst float64
	basis       int
}

// maxLearned bounds the answers that are kept: a few megabytes.
const maxLearned = 1 << 16

// learn asks the learned predictor for the slowdown that l adds to i.
func (b *Book) learn(i, l interference.Config) learned {
	key := [2]string{i.String(), l.String()}
	if p, ok := b.learned[key]; ok {
		return p
	}
	var out learned
	if b.o.Predictor != nil {
		p := b.o.Predictor.Predict(model.Query{GPU: b.o.GPU, Self: i, Partner: l})
		if p.Basis != model.Prior {
			out = learned{addedBy(p.Mean), addedBy(p.Low), strength(string(p.Basis))}
		}
	}
	if len(b.learned) >= maxLearned {
		clear(b.learned)
	}
	b.learned[key] = out
	return out
}

// addedBy is the slowdown of a rate.
func addedBy(rate float64) float64 { return min(mostAdded, max(0, 1/max(rate, leastRate)-1)) }

// known is the configuration that a key names in any case, and whether the learned predictor knows it.
func (b *Book) known(key string) (interference.Config, bool) {
	if b.o.Predictor == nil || b.o.GPU == "" {
		return interference.Config{}, false
	}
	for _, c := range configurations()[strings.ToLower(key)] {
		if b.learn(c, c).basis > 0 {
			return c, true
		}
	}
	return interference.Config{}, false
}

// configurations are those of the catalogue by their names in lower case, as keys may be written; some differ in nothing else.
var configurations = sync.OnceValue(func() map[string][]interference.Config {
	list := map[string][]interference.Config{}
	for _, e := range catalogue.All() {
		c := interference.Config{Model: e.Model, Batch: e.Batch}
		if key := strings.ToLower(c.String()); !slices.Contains(list[key], c) {
			list[key] = append(list[key], c)
		}
	}
	return list
})
