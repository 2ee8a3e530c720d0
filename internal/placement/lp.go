package placement

import (
	"context"
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement/covering"
)

// LP rounds the configuration linear program: within T GPUs of the optimum for T types of workers, where there are
// no gangs and no kinds are joined. More than maxTypes groups give a *LimitError. Jobs that differ in memory only are
// joined and counted at what suffices for each. Workers of one gang that meet on a GPU are placed anew, and then, as after
// joining, the least filled GPUs are tried to be emptied.
func LP(ctx context.Context, p *Problem) (*Packing, error) {
	q := &Packing{}
	for w := range cluster.Worker(len(p.job)) {
		if p.kindOf(w).group == alone && !p.TooLarge(p.Job(w)) {
			q.GPUs = append(q.GPUs, []cluster.Worker{w})
		}
	}
	types, joined, ok := p.classify(upward, everything)
	if !ok {
		return nil, &LimitError{"lp", "groups of jobs", len(p.sets.groups) - 1, maxTypes}
	}
	if len(types) == 0 || ctx.Err() != nil {
		return q, ctx.Err()
	}
	program := p.program(types, p.fits)
	solution, err := covering.Solve(program, 0)
	if err != nil {
		return nil, err
	}
	gpus, homeless := p.fill(types, covering.Round(program, solution, 0))
	q.GPUs = append(q.GPUs, gpus...)
	if len(homeless) == 0 && !joined {
		return q, ctx.Err()
	}
	return eliminate(ctx, p, p.rehouse(q, homeless))
}

// fill gives each place of the configurations a worker of its type. Workers of one job stand next to each other in
// their type, so that handing out first every configuration's first place of a type, then every second one, spreads a
// gang over GPUs; those that meet all the same are homeless.
func (p *Problem) fill(types []itemType, configs [][]int) (gpus [][]cluster.Worker, homeless []cluster.Worker) {
	gpus = make([][]cluster.Worker, len(configs))
	next := make([]int, len(types))
	for turn, more := 0, true; more; turn++ {
		more = false
		for g, config := range configs {
			for i, t := range config {
				if slices.Index(config, t)+turn != i {
					continue
				}
				more = true
				w := types[t].workers[next[t]]
				next[t]++
				if p.sameJob(gpus[g], w) {
					homeless = append(homeless, w)
				} else {
					gpus[g] = append(gpus[g], w)
				}
			}
		}
	}
	for g := range gpus {
		slices.Sort(gpus[g])
	}
	return gpus, homeless
}

// rehouse places workers that had to leave, each on the fullest GPU that takes it.
func (p *Problem) rehouse(q *Packing, homeless []cluster.Worker) *Packing {
	k := NewPacker(p, 0)
	k.adopt(q)
	for _, w := range homeless {
		g, _ := k.find(w) // GPUs are opened as needed
		k.put(w, g)
	}
	k.overlay.Commit()
	return k.packing()
}
