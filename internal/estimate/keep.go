package estimate

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// pair is two kinds in either order.
type pair struct{ a, b Kind }

func pairOf(i, l Kind) pair {
	if i.compare(l) > 0 {
		i, l = l, i
	}
	return pair{i, l}
}

func (p pair) compare(q pair) int { return cmp.Or(p.a.compare(q.a), p.b.compare(q.b)) }

func (k Kind) compare(l Kind) int {
	return cmp.Or(strings.Compare(k.Key, l.Key), cmp.Compare(k.Class, l.Class))
}

// longestKey is the most bytes of a key that a book keeps.
const longestKey = 1024

// named says whether a kind is one that something can be known of: its key is some text.
func (k Kind) named() bool {
	return k.Key != "" && len(k.Key) <= longestKey && utf8.ValidString(k.Key) && k.Class < classes
}

// Ban keeps two kinds apart until a time, whatever is believed of them; false where nothing can be known of one of them.
func (b *Book) Ban(i, l Kind, until time.Time) bool {
	if !i.named() || !l.named() {
		return false
	}
	x, of := b.ownAll(i, []Kind{l})
	b.bans[pairOf(i, l)] = until
	b.belief.Ban(x, of[0])
	return true
}

// Lift ends a ban.
func (b *Book) Lift(i, l Kind) {
	p := pairOf(i, l)
	if _, ok := b.bans[p]; ok {
		delete(b.bans, p)
		b.belief.Lift(b.index[i], b.index[l])
	}
}

// Ban is a pair of kinds that is kept apart until a time.
type Ban struct {
	A, B  Kind
	Until time.Time
}

// Bans are those of a book, in order of the kinds. Review ends them.
func (b *Book) Bans() []Ban {
	var list []Ban
	for _, p := range slices.SortedFunc(maps.Keys(b.bans), pair.compare) {
		list = append(list, Ban{p.a, p.b, b.bans[p]})
	}
	return list
}

// Banned says whether two kinds are kept apart.
func (b *Book) Banned(i, l Kind) bool {
	_, ok := b.bans[pairOf(i, l)]
	return ok
}

// forget drops the n rows that were asked for least recently. What is left keeps all that is believed of it.
func (b *Book) forget(n int) {
	order := slices.Clone(b.rows)
	slices.SortFunc(order, func(x, y *row) int { return cmp.Compare(x.touched, y.touched) })
	dropped := map[*row]bool{}
	for _, r := range order[:min(n, len(order))] {
		dropped[r] = true
	}
	old, rows := b.belief, b.rows
	bans, pilots, rest := b.bans, b.pilots, b.resting
	b.clear()
	var from []int
	for i, r := range rows {
		if dropped[r] {
			continue
		}
		from = append(from, i)
		b.index[r.kind] = b.belief.Grow(old.Safe().Config(i))
		b.rows = append(b.rows, r)
		if r.dirty {
			b.dirty++
		}
	}
	for i, x := range from {
		for l, y := range from {
			b.belief.Recall(i, l, old.Know(x, y))
		}
	}
	b.resume(bans, pilots, rest)
}

// Lesser is a copy without the quarter of it that was asked for least recently, for who has not room for all.
func (b *Book) Lesser() (*Book, error) {
	text, err := b.Encode()
	if err != nil {
		return nil, err
	}
	n := New(b.o)
	n.learned = b.learned
	if err := n.Restore(text); err != nil {
		return nil, err
	}
	n.forget((len(n.rows) + 3) / 4)
	n.forgetFacts((len(n.facts) + 3) / 4)
	return n, nil
}

// resume takes over bans, pilots and rests of the pairs that there are.
func (b *Book) resume(bans map[pair]time.Time, pilots map[pair]pilot, rest map[pair]resting) {
	for p, x := range bans {
		if i, l, ok := b.indexes(p); ok {
			b.bans[p] = x
			b.belief.Ban(i, l)
		}
	}
	for p, x := range pilots {
		if i, l, ok := b.indexes(p); ok {
			b.pilots[p] = x
			b.belief.Pilot(i, l)
		}
	}
	for p, x := range rest {
		if _, _, ok := b.indexes(p); ok {
			b.resting[p] = x
		}
	}
}

// indexes are the rows of a pair, where both have one.
func (b *Book) indexes(p pair) (i, l int, ok bool) {
	i, okA := b.index[p.a]
	l, okB := b.index[p.b]
	return i, l, okA && okB
}

// forgetFacts drops the n keys that were used least recently.
func (b *Book) forgetFacts(n int) {
	for _, key := range b.byUse()[:min(n, len(b.facts))] {
		delete(b.facts, key)
		b.soil(key)
	}
}

// byUse are the keys of all facts, the least recently used first.
func (b *Book) byUse() []string {
	return slices.SortedFunc(maps.Keys(b.facts), func(x, y string) int {
		return cmp.Compare(b.facts[x].touched, b.facts[y].touched)
	})
}
