package placement

import (
	"math"
)

// Scales tried for the effective memory, per GPU memory: from where it hardly differs from the mean to where it is
// nearly the peak, in steps of 2^(1/4). How many workers fit hardly changes within a step.
const (
	leastScale = 1.0
	mostScale  = 1024.0
)

// sizeSample bounds the kinds that the scale is chosen by: their mean settles long before.
const sizeSample = 256

// sizeKinds gives every kind its effective memory, the one number that orders workers and GPUs by how full they are. The
// scale is the one at which, by Chernoff's bound, most workers of the average size fit on a GPU.
func (p *Problem) sizeKinds() {
	s := p.scale()
	for k := range p.kinds {
		p.kinds[k].size = p.kinds[k].profile.Effective(s)
	}
}

func (p *Problem) scale() float64 {
	memory := float64(p.options.GPUMemory)
	if memory == 0 || p.options.Epsilon == 0 {
		return math.Inf(1)
	}
	best, most := math.Inf(1), 0.0
	for scale := leastScale; scale <= mostScale; scale *= math.Pow(2, 0.25) {
		s := scale / memory
		sum, n := 0.0, 0
		for k := 0; k < len(p.kinds); k += 1 + len(p.kinds)/sizeSample {
			sum += p.kinds[k].profile.Effective(s)
			n++
		}
		if fits := (memory - math.Log(1/p.options.Epsilon)/s) * float64(n) / max(1, sum); fits > most {
			best, most = s, fits
		}
	}
	return best
}
