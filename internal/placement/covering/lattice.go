package covering

import "slices"

// lattice remembers which configurations fit, as a tree that is filled where it is visited.
type lattice struct {
	p      Problem
	root   *node
	stored int
	asked  int   // candidates examined so far
	buffer []int // scratch of ask
}

// node stands for a configuration that fits: the types, none below its last member, that may join it.
type node struct {
	next []int32
	kids []*node // by position in next; nil where not visited
}

// storedLimit is the most entries of next that are remembered, about a quarter GiB with the nodes. Beyond it answers
// are asked for again.
const storedLimit = 10_000_000

func newLattice(p Problem) *lattice {
	l := &lattice{p: p, root: &node{}}
	for t, d := range p.Demand {
		if d > 0 {
			l.root.next = append(l.root.next, int32(t))
		}
	}
	return l
}

// child is the node of config, which is the configuration of parent and the type at position i of its next.
func (l *lattice) child(parent *node, i int, config column) *node {
	if parent.kids == nil {
		if l.stored > storedLimit {
			return l.expand(parent, i, config)
		}
		parent.kids = make([]*node, len(parent.next))
	}
	kid := parent.kids[i]
	if kid == nil {
		kid = l.expand(parent, i, config)
		if l.stored <= storedLimit {
			parent.kids[i] = kid
			l.stored += len(kid.next) + 1
		}
	}
	return kid
}

// expand finds what may join config: only what may join it without its last member, and may share with that one, needs
// to be asked about.
func (l *lattice) expand(parent *node, i int, config column) *node {
	kid := &node{}
	last := len(config)
	if last >= l.p.MaxSize {
		return kid
	}
	partners := parent.next // of the last member
	if last > 1 {
		partners = l.partners(config[last-1])
	}
	larger := append(slices.Clone(config), 0)
	for _, t := range parent.next[i:] {
		l.asked++
		larger[last] = t
		if larger.repeats(last) >= l.p.Demand[t] {
			continue
		}
		if _, ok := slices.BinarySearch(partners, t); ok && l.ask(larger) {
			kid.next = append(kid.next, t)
		}
	}
	kid.next = slices.Clip(kid.next)
	return kid
}

// partners are the types, not below t, that may share with a type t in demand.
func (l *lattice) partners(t int32) []int32 {
	i, _ := slices.BinarySearch(l.root.next, t)
	return l.child(l.root, i, column{t}).next
}

func (l *lattice) ask(c column) bool {
	l.buffer = l.buffer[:0]
	for _, t := range c {
		l.buffer = append(l.buffer, int(t))
	}
	return l.p.Fits(l.buffer)
}

// fits says whether a configuration of types in demand fits. The answer is not remembered.
func (l *lattice) fits(c column) bool {
	if len(c) > l.p.MaxSize {
		return false
	}
	for i, t := range c {
		if i == len(c)-1 {
			break
		}
		partners := l.partners(t)
		for k, u := range c[i+1:] {
			if k > 0 && u == c[i+k] {
				continue
			}
			if _, ok := slices.BinarySearch(partners, u); !ok {
				return false
			}
		}
	}
	return len(c) < 2 || l.ask(c)
}
