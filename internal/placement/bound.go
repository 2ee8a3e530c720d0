package placement

import (
	"math"

	"weft.dev/weft/internal/placement/covering"
	"weft.dev/weft/internal/profile"
)

// Bound is a proven lower bound: no plan needs fewer GPUs.
type Bound struct {
	GPUs float64 // may be fractional; the least whole number of GPUs is Whole
	Kind string  // how it was proven
}

// boundTolerance keeps a bound of 53.0000000001, a sum of rounded weights, from being read as 54.
const boundTolerance = 1e-6

// Whole is the least number of GPUs that the bound allows.
func (b Bound) Whole() int { return int(math.Ceil(b.GPUs - boundTolerance)) }

// LowerBound is the largest of the bounds that hold for a problem: the configuration linear program; workers over
// residents per GPU; persistent memory over memory per GPU; the largest gang. The first implies the next two, a clique
// of incompatible workers and the mean demand too, as each holds for every configuration; they count where the
// program is too large. Jobs that differ in memory only are joined and counted at what each of them at least needs, which
// keeps the bound valid; a second program then sees memory only, and so can afford to see it finely.
func LowerBound(p *Problem) Bound {
	single, gang := 0, 0
	workers, reserved := 0.0, 0.0
	for j := range p.jobs {
		if p.TooLarge(j) {
			continue
		}
		n := p.jobs[j].Workers
		gang = max(gang, n)
		kind := &p.kinds[p.kind[j]]
		if kind.group == alone {
			single += n
			continue
		}
		workers += float64(n)
		reserved += float64(n) * float64(kind.profile.Persistent)
	}
	best := Bound{float64(single), "configuration LP"}
	for _, b := range []Bound{
		{float64(single) + p.programBound(everything), "configuration LP"},
		{float64(single) + p.programBound(memoryOnly), "configuration LP on memory"},
		{float64(single) + math.Ceil(workers/float64(p.options.MaxResidents)), "residents per GPU"},
		{float64(single) + reservedBound(reserved, p), "reserved memory"},
		{float64(gang), "largest gang"},
	} {
		if b.GPUs > best.GPUs+boundTolerance {
			best = b
		}
	}
	return best
}

func reservedBound(bytes float64, p *Problem) float64 {
	if p.options.GPUMemory == 0 {
		return 0
	}
	return math.Ceil(bytes/float64(p.options.GPUMemory) - boundTolerance)
}

// programBound is the bound of the configuration program on the workers that may share, 0 when it has too many types. The
// view on memory only adds nothing where the full one had to join no kinds: it is a relaxation of it.
func (p *Problem) programBound(v view) float64 {
	types, joined, ok := p.classify(downward, v)
	if !ok || len(types) == 0 || v == memoryOnly && p.options.GPUMemory == 0 {
		return 0
	}
	if v == memoryOnly && !joined {
		if _, both, full := p.classify(downward, everything); full && !both {
			return 0
		}
	}
	program := p.program(types, p.mayFit)
	if v == memoryOnly {
		memory := &memoryCheck{types: types, fits: p.mayFit}
		program.Fits, program.Penalty = memory.check, nil
	}
	solution, err := covering.Solve(program, 0)
	if err != nil {
		return 0 // the program is outside the solver's contract: no bound from it
	}
	return solution.Bound
}

// memoryRule says whether one more worker fits a GPU's memory: fits to place it, mayFit to bound what is possible.
type memoryRule func(profile.Load, profile.Profile) bool

// program is the configuration program over types.
func (p *Problem) program(types []itemType, fits memoryRule) covering.Problem {
	c := covering.Problem{MaxSize: p.options.MaxResidents, Demand: make([]int, len(types))}
	for t := range types {
		c.Demand[t] = len(types[t].workers)
	}
	memory := &memoryCheck{types: types, fits: fits}
	c.Fits = func(config []int) bool { return p.setOf(types, config) != refused && memory.check(config) }
	c.Penalty = func(config []int) float64 { return p.sets.all[p.setOf(types, config)].slowdown }
	return c
}

// setOf is the set of groups of a configuration, or refused.
func (p *Problem) setOf(types []itemType, config []int) int32 {
	set := empty
	for _, t := range config {
		if set = p.sets.join(set, types[t].group); set == refused {
			return refused
		}
	}
	return set
}

// memoryCheck says whether configurations fit a GPU's memory. It keeps the loads of the last one's members but the last:
// the program asks one after the other for configurations that differ in their last member only.
type memoryCheck struct {
	types   []itemType
	fits    memoryRule
	members []int
	loads   []profile.Load // after each of the members
}

func (m *memoryCheck) check(config []int) bool {
	same := 0
	for same < min(len(m.members), len(config)-1) && m.members[same] == config[same] {
		same++
	}
	m.members, m.loads = m.members[:same], m.loads[:same]
	var load profile.Load
	if same > 0 {
		load = m.loads[same-1]
	}
	for i := same; i < len(config); i++ {
		need := m.types[config[i]].profile
		if !m.fits(load, need) {
			return false
		}
		if i < len(config)-1 {
			load = load.Add(need)
			m.members, m.loads = append(m.members, config[i]), append(m.loads, load)
		}
	}
	return true
}
