package sim

import (
	"strings"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// shape is everything about a job that a placer may look at. Jobs of one shape find room, or none, alike: a pass that
// was refused one of them need not ask for the others.
type shape struct {
	workers                    int
	share                      unit.MilliGPU
	model, batch, models, user string
	floor                      float64
	class                      cluster.Class
	priority                   int
	memory                     cluster.Memory
	util                       float64
	cpu                        unit.MilliCPU
	host                       unit.Bytes
}

func shapeOf(j *cluster.Job) shape {
	s := shape{workers: j.Workers, share: j.Share, model: j.Model, batch: j.Batch, user: j.User, floor: j.Floor,
		class: j.Class, priority: j.Priority, memory: j.Memory, util: j.GPUUtil, cpu: j.CPU, host: j.HostMemory}
	if len(j.Models) > 0 {
		s.models = strings.Join(j.Models, "|")
	}
	return s
}

// shapesOf numbers the distinct shapes of jobs and says which one each job has.
func shapesOf(jobs []cluster.Job) (of []int32, shapes int) {
	of = make([]int32, len(jobs))
	known := map[shape]int32{}
	for i := range jobs {
		s := shapeOf(&jobs[i])
		k, ok := known[s]
		if !ok {
			k = int32(len(known))
			known[s] = k
		}
		of[i] = k
	}
	return of, len(known)
}
