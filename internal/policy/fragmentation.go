package policy

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// typicalPercent is how much of the jobs the typical ones must cover, most frequent first: the study's choice.
const typicalPercent = 95

// typicalPod is one frequent request, with its share of all frequent ones.
type typicalPod struct {
	shapeKey
	count    int
	fraction float64
	at       int // index of its share in fragmentation.shares
}

// fragmentation measures the free GPU of a node that the next job is expected not to be able to use, where the next
// job is one of the typical ones, as likely as it was frequent (Weng et al., "Beware of Fragmentation", USENIX ATC
// 2023): for each typical job that fits, what is left of the GPUs too full for it; for each that does not, and for
// each without GPUs, all that is left of the node.
type fragmentation struct {
	pods   []typicalPod
	shares []unit.MilliGPU // the distinct shares that the pods ask for
	fit    []int           // scratch: GPUs with at least shares[i] left
	below  []unit.MilliGPU // scratch: sum of what is left of the others
}

// newFragmentation finds the typical jobs: grouped by CPU, share, workers and models, ordered by count, CPU, share,
// workers, models, all descending, as many as cover typicalPercent. A job that must span nodes counts as one that
// asks for a whole largest node, for that is how it is placed.
func newFragmentation(t *shapeTable, jobs []cluster.Job) (*fragmentation, error) {
	counts := map[shapeKey]int{}
	for i := range jobs {
		key, err := t.key(&jobs[i])
		if err != nil {
			return nil, err
		}
		if most := key.runsOn.most; key.workers > most && most > 0 {
			key = key.part(most)
		}
		key.memory = 0 // the measure ignores host memory
		counts[key]++
	}
	f := &fragmentation{}
	for key, n := range counts {
		f.pods = append(f.pods, typicalPod{shapeKey: key, count: n})
	}
	slices.SortFunc(f.pods, func(a, b typicalPod) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(b.cpu, a.cpu), cmp.Compare(b.share, a.share),
			cmp.Compare(b.workers, a.workers), cmp.Compare(b.runsOn.models, a.runsOn.models),
			slices.CompareFunc(a.runsOn.kinds, b.runsOn.kinds, compareBool))
	})
	f.keep(len(jobs))
	return f, nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// keep cuts the pods to the typical ones and works out their fractions.
func (f *fragmentation) keep(jobs int) {
	covered, n := 0, 0
	for n < len(f.pods) && covered*100 < typicalPercent*jobs {
		covered += f.pods[n].count
		n++
	}
	f.pods = f.pods[:n]
	for i := range f.pods {
		p := &f.pods[i]
		// Of all, then of the covered: the study's order of division, which the last digit shows.
		p.fraction = float64(p.count) / float64(jobs) / (float64(covered) / float64(jobs))
		if p.at = slices.Index(f.shares, p.share); p.at < 0 {
			p.at = len(f.shares)
			f.shares = append(f.shares, p.share)
		}
	}
	f.fit = make([]int, len(f.shares))
	f.below = make([]unit.MilliGPU, len(f.shares))
}

// of is the fragmentation of a node as it is.
func (f *fragmentation) of(n *nodeFree) float64 {
	if !n.measured {
		n.fragment = f.measure(n, n.cpu, n.left, n.total)
		n.measured = true
	}
	return n.fragment
}

// measure is the fragmentation, in thousandths of a GPU, that a node would have with the given CPU and GPUs left,
// which add up to total. The six classes are summed apart, each in the order of the typical jobs, and then in this
// order: floating-point sums depend on it, and so do the study's figures.
// O(distinct shares x GPUs + typical jobs).
func (f *fragmentation) measure(n *nodeFree, cpu unit.MilliCPU, left []unit.MilliGPU, total unit.MilliGPU) float64 {
	for i, share := range f.shares {
		fit, below := 0, unit.MilliGPU(0)
		for _, l := range left {
			if l >= share {
				fit++
			} else {
				below += l
			}
		}
		f.fit[i], f.below[i] = fit, below
	}
	all := float64(total)
	var neither, noGPU, noCPU, cpuOnly, noCPUOnly, refused float64
	for i := range f.pods {
		p := &f.pods[i]
		cpuFits := n.anyCPU || cpu >= p.cpu
		gpusFit := f.fit[p.at] >= p.workers
		switch {
		case p.workers == 0 && cpuFits:
			cpuOnly += float64(p.fraction * all)
		case p.workers == 0:
			noCPUOnly += float64(p.fraction * all)
		case !p.runsOn.kinds[n.kind]:
			refused += float64(p.fraction * all)
		case gpusFit && cpuFits:
			noGPU += float64(p.fraction * float64(f.below[p.at]))
		case gpusFit:
			noCPU += float64(p.fraction * all)
		case cpuFits:
			noGPU += float64(p.fraction * all)
		default:
			neither += float64(p.fraction * all)
		}
	}
	return neither + noGPU + noCPU + cpuOnly + noCPUOnly + refused
}
