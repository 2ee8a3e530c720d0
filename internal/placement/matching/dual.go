package matching

import "math"

// adjust lowers the dual of outer vertices and raises that of inner ones as far as the constraints allow, then follows
// all arcs that became tight. It reports false when the free vertices reach zero: the optimum; it returns the arc when
// one joins two trees.
func (s *solver) adjust() (int32, bool) {
	free, step := s.reach()
	step = min(step, free)
	if step > 0 {
		s.shift(step)
	}
	if step == free {
		return none, false
	}
	s.collectTight()
	for _, a := range s.tight {
		if s.follow(a) {
			return a, true
		}
	}
	for b := s.g.n; b < len(s.base); b++ {
		if s.base[b] != none && s.parent[b] == none && s.labels[b] == inner && s.z[b] == 0 {
			s.open(int32(b))
		}
	}
	return none, true
}

// reach is the dual of the free vertices and the largest step that all other constraints allow.
func (s *solver) reach() (free, step int64) {
	free, step = 0, math.MaxInt64
	for b, v := range s.base {
		if v == none {
			continue
		}
		isTop := s.parent[b] == none
		if isTop && s.labels[b] == outer {
			if s.mate[v] == none {
				free = s.u[v]
			}
			if a := s.best[b]; a != none {
				step = min(step, s.slack(a)/2)
			}
		}
		if isTop && b >= s.g.n && s.labels[b] == inner {
			step = min(step, s.z[b]/2)
		}
	}
	for v := range s.g.n {
		if a := s.best[v]; a != none && s.labels[s.top[v]] == outside {
			step = min(step, s.slack(a))
		}
	}
	return free, step
}

func (s *solver) shift(step int64) {
	for v, b := range s.top {
		switch s.labels[b] {
		case outer:
			s.u[v] -= step
		case inner:
			s.u[v] += step
		}
	}
	for b := s.g.n; b < len(s.base); b++ {
		if s.base[b] == none || s.parent[b] != none {
			continue
		}
		switch s.labels[b] {
		case outer:
			s.z[b] += 2 * step
		case inner:
			s.z[b] -= 2 * step
		}
	}
}

// collectTight lists the recorded arcs without slack, those between outer nodes first: they may end the stage.
func (s *solver) collectTight() {
	s.tight = s.tight[:0]
	for b := range s.base {
		if a := s.best[b]; a != none && s.base[b] != none && s.parent[b] == none && s.labels[b] == outer && s.slack(a) == 0 {
			s.tight = append(s.tight, a)
		}
	}
	for v := range s.g.n {
		if a := s.best[v]; a != none && s.labels[s.top[v]] == outside && s.slack(a) == 0 {
			s.tight = append(s.tight, a)
		}
	}
}
