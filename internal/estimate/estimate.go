// Package estimate is what a running machine knows of its jobs: how fast and how busy each kind is alone, what each pair
// of kinds is expected to lose to the other, and how sure that is. Predictions come from a model of taking turns and from
// the learned predictor; observations correct them. It is pure: time and windows are inputs, what is due is an answer.
package estimate

import (
	"math"
	"slices"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/interference/model"
)

// Kind is what makes jobs alike.
type Kind struct {
	Key   string // a profile's name, or user and name of the job; a kind without a key shares with nobody
	Class cluster.Class
}

// Options are what a Book starts from. The zero value of each means its default.
type Options struct {
	GPU       string           // model of the GPUs, by the catalogue's short name; unknown
	Predictor *model.Predictor // none
	Coverage  float64          // probability that a rate is at least its low bound, in (0.5, 1); 0.9
	Loss      float64          // share of a higher job's time that lower ones may cost it, in (0, 1): the arbiter's; 0.01
	Minimum   float64          // share of a GPU that the besteffort class gets beside busy higher ones, in [0, 1): the arbiter's; 0
}

func (o Options) withDefaults() Options {
	if !(o.Coverage > 0.5 && o.Coverage < 1) {
		o.Coverage = 0.9
	}
	if !(o.Loss > 0 && o.Loss < 1) {
		o.Loss = 0.01
	}
	if !(o.Minimum > 0 && o.Minimum < 1) {
		o.Minimum = 0
	}
	return o
}

// News is the least change of a safe rate that is worth planning anew.
const News = 0.005

// Bounds of what a book keeps. Beyond them, what was asked for least recently is forgotten, a quarter at a time.
const (
	maxFacts = 2048 // keys
	maxRows  = 384  // kinds with pairs of their own: a few megabytes
)

// Book is all of it. It is for one goroutine.
type Book struct {
	o       Options
	facts   map[string]*facts
	belief  *interference.Belief
	rows    []*row // by number of the configuration in the belief
	index   map[Kind]int
	dirty   int     // rows whose prior is to be read again
	moved   float64 // the largest change of a safe rate by that since the last Review
	turn    uint64
	bans    map[pair]time.Time // until when they are kept apart
	pilots  map[pair]pilot
	resting map[pair]resting
	learned map[[2]string]learned
}

// row is a kind with pairs of its own, or, without a key, all kinds of its class of which nothing is known.
type row struct {
	kind    Kind
	basis   facet  // what the priors of its pairs rest on
	bad     []Kind // beside whom its last observation was worse than expected by more than it was uncertain; nil it was not
	dirty   bool
	touched uint64
}

// New is an empty book.
func New(o Options) *Book {
	b := &Book{o: o.withDefaults(), facts: map[string]*facts{}, learned: map[[2]string]learned{}}
	b.clear()
	return b
}

// clear forgets all pairs.
func (b *Book) clear() {
	b.belief = interference.NewBelief(interference.NewTable(), interference.NewTable(), b.o.Coverage)
	b.rows, b.index, b.dirty = nil, map[Kind]int{}, 0
	b.bans, b.pilots, b.resting = map[pair]time.Time{}, map[pair]pilot{}, map[pair]resting{}
}

// Config names a kind in the table of Safe, for a job's model and batch. Kinds of which nothing is known share the name of
// their class, so that a thousand of them cost nothing, and get their own once something is: ask again for every plan, of
// all jobs before Safe.
func (b *Book) Config(k Kind) interference.Config {
	if !k.named() {
		return interference.Config{}
	}
	return b.belief.Safe().Config(b.find(k))
}

// Safe is the table that placement rests on: safe slowdowns, what is banned, and what can be hoped of pilots. It must not be
// changed, and holds until the book is told or asked something else.
func (b *Book) Safe() *interference.Table {
	b.refresh()
	return b.belief.Safe()
}

// unknownModel names the rows of kinds of which nothing is known. It is no key, for it is no text.
const unknownModel = "unknown\xff"

// find is the row of a kind: its own, or, where nothing is known of it, that of all such of its class.
func (b *Book) find(k Kind) int { return b.own(b.rowKind(k)) }

// rowKind is the kind that the row of a kind is of: itself, or the one without a key.
func (b *Book) rowKind(k Kind) Kind {
	if _, ok := b.index[k]; ok {
		return k
	}
	if k.named() {
		if _, learned := b.known(k.Key); learned || b.facts[k.Key] != nil {
			return k
		}
	}
	return Kind{Class: min(k.Class, classes-1)}
}

// own is the row of a kind, which gets one where it has none.
func (b *Book) own(k Kind) int {
	if i, ok := b.index[k]; ok {
		b.touch(i)
		return i
	}
	return b.grow(k)
}

func (b *Book) touch(i int) {
	b.turn++
	b.rows[i].touched = b.turn
}

func (b *Book) grow(k Kind) int {
	if len(b.rows) >= maxRows {
		b.forget(maxRows / 4)
	}
	c := interference.Config{Model: k.Key, Batch: k.Class.String()}
	if k.Key == "" {
		c.Model = unknownModel
	}
	i := b.belief.Grow(c)
	b.rows = append(b.rows, &row{kind: k, dirty: true})
	b.index[k] = i
	b.dirty++
	b.touch(i)
	return i
}

// soil notes that what is known of a key has changed.
func (b *Book) soil(key string) {
	for class := range classes {
		if i, ok := b.index[Kind{key, class}]; ok && !b.rows[i].dirty {
			b.rows[i].dirty = true
			b.dirty++
		}
	}
}

// refresh reads the priors of all pairs again of which one side has changed. O(rows * changed).
func (b *Book) refresh() {
	if b.dirty == 0 {
		return
	}
	changed := make([]int, 0, b.dirty)
	for i, r := range b.rows {
		if r.dirty {
			r.basis = b.facet(r.kind.Key)
			changed = append(changed, i)
		}
	}
	for _, i := range changed {
		for l := range b.rows {
			b.expect(i, l)
			if !b.rows[l].dirty {
				b.expect(l, i)
			}
		}
	}
	for _, i := range changed {
		b.rows[i].dirty = false
	}
	b.dirty = 0
}

func (b *Book) expect(i, l int) {
	p := b.prior(b.rows[i], b.rows[l])
	b.moved = max(b.moved, b.belief.Expect(i, l, p.mean, p.deviation))
}

// Mean is the slowdown that l is expected to add to i: 1/rate - 1.
func (b *Book) Mean(i, l Kind) float64 {
	x, y := b.both(i, l)
	b.refresh()
	return b.belief.Mean(x, y)
}

// Seen is how often i was observed beside l.
func (b *Book) Seen(i, l Kind) int {
	x, okX := b.index[i]
	y, okY := b.index[l]
	if !okX || !okY {
		return 0
	}
	return b.belief.Seen(x, y)
}

// both are the rows of two kinds: the second may make room in the table, which numbers rows anew.
func (b *Book) both(i, l Kind) (x, y int) {
	b.find(i)
	y = b.find(l)
	return b.find(i), y
}

// ownAll gives rows of their own to a kind and others.
func (b *Book) ownAll(k Kind, others []Kind) (i int, of []int) {
	b.own(k)
	for _, o := range others {
		b.own(o)
	}
	of = make([]int, len(others))
	for n, o := range others {
		of[n] = b.own(o)
	}
	return b.own(k), of
}

// Observe corrects what is believed by one observed rate of a job beside others, as a share of its rate alone, whose noise
// has the standard deviation noise as a share of the rate. It returns the largest change of a safe rate: from News on it is
// worth planning anew. A rate that is no number tells nothing, and one above 1 counts as 1.
func (b *Book) Observe(k Kind, others []Kind, rate, noise float64) (news float64) {
	if math.IsNaN(rate) || rate < 0 || len(others) == 0 || len(others) > mostOthers || !k.named() || !named(others) {
		return 0
	}
	if !(noise > leastNoise) {
		noise = leastNoise
	}
	i, of := b.ownAll(k, others)
	b.refresh()
	rate, noise = min(rate, 1), min(noise, 1)
	return b.belief.Observe(i, of, rate, noise*b.trust(i, of, others, rate, noise))
}

// trust is what the noise of an observation is multiplied with. Good news of a pair that was hardly seen is doubted: a job may
// have had little to do in one window. Bad news is taken for chance once, and believed the second time in a row.
func (b *Book) trust(i int, of []int, others []Kind, rate, noise float64) float64 {
	r, expected := b.rows[i], b.belief.Slowdown(i, of)
	observed := 1 / max(rate, leastRate)
	spread := noise * observed * noise * observed
	for _, l := range of {
		spread += b.belief.Deviation(i, l) * b.belief.Deviation(i, l)
	}
	bad := observed-expected > math.Sqrt(spread)
	again := bad && slices.Equal(r.bad, others)
	r.bad = nil
	if bad {
		r.bad = slices.Clone(others)
	}
	switch {
	case again:
		return secondTrust
	case observed < expected && slices.ContainsFunc(of, func(l int) bool { return b.belief.Seen(i, l) < manyTimes }):
		return firstDoubt
	}
	return 1
}

// Figures of observations.
const (
	leastNoise  = 0.02 // of a window: what it does not repeat of itself
	mostOthers  = 64   // on one GPU: more is a mistake
	manyTimes   = 3    // observations of a pair after which its rate rests on them
	firstDoubt  = 2    // times the noise, of good news before that
	secondTrust = 0.5  // times the noise, of bad news again
)

// Predict is the rate of a job beside others, as a share of its rate alone: as expected, and the bounds that it is above or
// below with the probability Coverage each. basis names what the weakest of the pairs rests on.
func (b *Book) Predict(k Kind, others []Kind) (mean, low, high float64, basis string) {
	if len(others) == 0 {
		return 1, 1, 1, "alone"
	}
	for _, o := range others {
		b.both(k, o)
	}
	b.refresh()
	i := b.find(k)
	slowdown, least, most := 1.0, 1.0, 1.0
	weakest := len(bases)
	for _, o := range others {
		l := b.find(o)
		added, width := b.belief.Mean(i, l), b.belief.Quantile()*b.belief.Deviation(i, l)
		slowdown, least, most = slowdown+added, least+max(0, added-width), most+added+width
		weakest = min(weakest, b.basisOf(i, l))
	}
	return 1 / slowdown, 1 / most, 1 / least, bases[weakest]
}

func named(kinds []Kind) bool {
	return !slices.ContainsFunc(kinds, func(k Kind) bool { return !k.named() })
}
