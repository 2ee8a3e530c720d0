package dispatch

import (
	"cmp"
	"slices"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
)

// Move takes a job from its GPUs to others: all of its workers stop and go on.
type Move struct {
	Job      box.ID
	From, To []int // To is nil where it goes back to the queue
}

// Remedy is what is done for jobs below their floor.
type Remedy struct {
	Below []box.ID  // believed below their floor
	Move  Move      // Job is 0 where nobody can leave
	Apart [2]box.ID // the two in conflict, whose kinds are to be kept apart for a time
}

func (r *Remedy) part(pair [2]*Job) { r.Apart = [2]box.ID{pair[0].ID, pair[1].ID} }

// Repair looks for a resident of a GPU to leave it, because one is believed below its floor. mean is the slowdown that job l is
// believed to add to job i. It is false where every resident is believed to hold its floor, those aside that were asked to end.
//
// Who leaves is the job that leaves the fewest below, then the one whose pause costs the least GPU time, then the one that
// ran least: only a migratable one, to a GPU that takes it with the two in conflict kept apart. Where no GPU does, a
// migratable besteffort job goes back to the queue. Work is never thrown away for a floor.
func Repair(s *State, mean func(i, l box.ID) float64, gpu int) (Remedy, bool) {
	r := repair{s: s, mean: mean, gpu: gpu}
	for i := range s.Jobs {
		if j := &s.Jobs[i]; slices.Contains(j.On, gpu) && !j.Stopping {
			r.residents = append(r.residents, j)
		}
	}
	slices.SortFunc(r.residents, func(a, b *Job) int { return cmp.Compare(a.ID, b.ID) })
	below := r.below(nil)
	if len(below) == 0 {
		return Remedy{}, false
	}
	remedy := Remedy{}
	for _, j := range below {
		remedy.Below = append(remedy.Below, j.ID)
	}
	leavers := r.leavers()
	remedy.part(r.conflict(leavers[0], below))
	for _, j := range leavers {
		pair := r.conflict(j, below)
		if to := r.elsewhere(j, pair); to != nil {
			remedy.part(pair)
			remedy.Move = Move{j.ID, slices.Clone(j.On), to}
			return remedy, true
		}
	}
	for _, j := range leavers {
		if j.Class == cluster.BestEffort && movable(j) && r.relieves(j, below) {
			remedy.part(r.conflict(j, below))
			remedy.Move = Move{j.ID, slices.Clone(j.On), nil}
			return remedy, true
		}
	}
	return remedy, true
}

// repair is a GPU that is to be relieved.
type repair struct {
	s         *State
	mean      func(i, l box.ID) float64
	gpu       int
	residents []*Job
}

// movable says whether a job may be asked to go on elsewhere now.
func movable(j *Job) bool { return j.Migratable && !j.NoMove && !j.Stopping }

// below are the residents that are believed below their floor once one is gone.
func (r *repair) below(without *Job) []*Job {
	var below []*Job
	for _, j := range r.residents {
		if j == without {
			continue
		}
		slowdown := 1.0
		for _, other := range r.residents {
			if other != j && other != without {
				slowdown += max(0, r.mean(j.ID, other.ID))
			}
		}
		if !(1/slowdown >= j.Floor-floorTolerance) {
			below = append(below, j)
		}
	}
	return below
}

// leavers are the residents, the one whose leaving helps most first.
func (r *repair) leavers() []*Job {
	type cost struct {
		below int
		pause time.Duration
		ran   time.Duration
	}
	costs := map[*Job]cost{}
	for _, j := range r.residents {
		costs[j] = cost{len(r.below(j)), j.Pause * time.Duration(len(j.On)), r.s.Now.Sub(j.Started)}
	}
	leavers := slices.Clone(r.residents)
	slices.SortStableFunc(leavers, func(a, b *Job) int {
		x, y := costs[a], costs[b]
		return cmp.Or(cmp.Compare(x.below, y.below), cmp.Compare(x.pause, y.pause), cmp.Compare(x.ran, y.ran))
	})
	return leavers
}

// relieves says whether fewer residents are below their floor once one is gone.
func (r *repair) relieves(j *Job, below []*Job) bool { return len(r.below(j)) < len(below) }

// conflict is the pair in conflict: the leaving job and the first that it brings below its floor, or, where it is below its own,
// the one that slows it most.
func (r *repair) conflict(leaving *Job, below []*Job) [2]*Job {
	for _, j := range below {
		if j != leaving {
			return [2]*Job{leaving, j}
		}
	}
	worst, most := leaving, -1.0
	for _, j := range r.residents {
		if added := r.mean(leaving.ID, j.ID); j != leaving && added > most {
			worst, most = j, added
		}
	}
	return [2]*Job{leaving, worst}
}

// elsewhere is the GPUs of a job that leaves the GPU for another, with a pair kept apart; nil where it cannot, or its leaving
// does not help.
func (r *repair) elsewhere(j *Job, apart [2]*Job) []int {
	if !movable(j) || !r.relieves(j, r.below(nil)) {
		return nil
	}
	s := *r.s
	s.Bans = append(slices.Clone(s.Bans), Ban{apart[0].Config, apart[1].Config, s.Now.Add(1)})
	return newBoard(&s, false).rehouse(j.ID, r.gpu)
}

// rehouse moves a job's worker from a GPU to another and says where all its workers are then; nil where it cannot.
func (b *board) rehouse(id box.ID, gpu int) []int {
	job := b.number[id]
	first, _ := b.problem.WorkersOf(job)
	at := slices.Index(b.on[job], cluster.GPU(gpu))
	if at < 0 || !b.packer.RehouseWhere(first+cluster.Worker(at), func(g cluster.GPU) bool { return int(g) != gpu }) {
		return nil
	}
	b.on[job] = b.packer.GPUsOf(job)
	return indexes(b.on[job])
}

// Evacuate moves who can be moved off a GPU that takes no jobs any more: elsewhere where there is room, else back to the
// queue. Who cannot be moved stays to its end.
func Evacuate(s *State, gpu int) []Move {
	if gpu < 0 || gpu >= len(s.GPUs) {
		return nil
	}
	b := newBoard(s, false)
	var moves []Move
	for i, j := range b.jobs {
		if !movable(j) || !slices.Contains(b.on[i], cluster.GPU(gpu)) {
			continue
		}
		to := b.rehouse(j.ID, gpu)
		if to == nil {
			b.packer.Remove(i)
			b.on[i] = nil
		}
		moves = append(moves, Move{j.ID, slices.Clone(j.On), to})
	}
	return moves
}
