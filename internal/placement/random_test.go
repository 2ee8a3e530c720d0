package placement

import (
	"fmt"
	"math"
	"math/bits"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// scene is a random problem with what it was made from.
type scene struct {
	jobs     []cluster.Job
	table    *interference.Table
	profiles []profile.Profile
	options  Options
	grain    unit.Bytes // every byte count is a multiple: 1, or so much that sums of levels must be merged
}

func (s *scene) problem() *Problem { return NewProblem(s.jobs, s.table, s.profiles, s.options) }

// drawScene draws up to workers workers in jobs of up to gang workers, with some pairs unmeasured, some jobs without a
// model, and memory that binds in about half the scenes.
func drawScene(t *rapid.T, workers, gang int) *scene {
	s := &scene{table: drawTable(t), grain: rapid.SampledFrom([]unit.Bytes{1, 1_000_003}).Draw(t, "grain")}
	s.options = Options{
		MaxResidents: rapid.IntRange(1, 4).Draw(t, "residents"),
		Epsilon:      rapid.SampledFrom([]float64{0, 0.05, 0.2}).Draw(t, "epsilon"),
	}
	if rapid.Bool().Draw(t, "memory binds") {
		s.options.GPUMemory = 16 * s.grain
	}
	floors := rapid.SampledFrom([]float64{0.5, 0.7, 0.8, 0.9, 1})
	for left := workers; left > 0; {
		job := cluster.Job{ID: fmt.Sprintf("job%02d", len(s.jobs)), Workers: rapid.IntRange(1, min(left, gang)).Draw(t, "gang")}
		left -= job.Workers
		if c := rapid.IntRange(-1, s.table.Len()-1).Draw(t, "config"); c >= 0 {
			job.Model, job.Batch = s.table.Config(c).Model, s.table.Config(c).Batch
		}
		job.Floor = floors.Draw(t, "floor")
		job.Class = cluster.Class(rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "class"))
		s.jobs = append(s.jobs, job)
		s.profiles = append(s.profiles, s.drawProfile(t))
	}
	return s
}

func drawTable(t *rapid.T) *interference.Table {
	table := interference.NewTable()
	n := rapid.IntRange(1, 5).Draw(t, "configs")
	rate := rapid.Float64Range(0.4, 1.1)
	for i := range n {
		for l := range i + 1 {
			if rapid.IntRange(0, 9).Draw(t, "measured") > 0 {
				table.Add(config(i), config(l), rate.Draw(t, "a"), rate.Draw(t, "b"))
			}
		}
	}
	if table.Len() == 0 {
		table.Add(config(0), config(0), 0.9, 0.9)
	}
	return table
}

func config(i int) interference.Config { return interference.Config{Model: fmt.Sprintf("m%d", i)} }

// drawProfile is small against a GPU of 16 grains; about a twentieth are too large for it.
func (s *scene) drawProfile(t *rapid.T) profile.Profile {
	persistent := s.grain * unit.Bytes(rapid.IntRange(0, 8).Draw(t, "persistent"))
	ephemeral := s.grain * unit.Bytes(rapid.IntRange(0, 9).Draw(t, "ephemeral"))
	shape, _ := profile.NamedShape(rapid.SampledFrom(profile.ShapeNames()).Draw(t, "shape"))
	return profile.New(persistent, persistent+ephemeral, shape)
}

// optimum is the fewest GPUs that hold all workers, by dynamic programming over subsets: at most 12 workers. It
// judges every set by judge, which knows nothing of the package's algorithms.
func (s *scene) optimum() int {
	var workers []int // job of each placeable worker
	for j, job := range s.jobs {
		if s.options.GPUMemory > 0 && s.profiles[j].Peak() > s.options.GPUMemory {
			continue
		}
		for range job.Workers {
			workers = append(workers, j)
		}
	}
	n := len(workers)
	fits := make([]bool, 1<<n)
	for set := 1; set < 1<<n; set++ {
		fits[set] = bits.OnesCount(uint(set)) <= s.options.MaxResidents && s.judge(pick(workers, set))
	}
	fewest := make([]int, 1<<n)
	for set := 1; set < 1<<n; set++ {
		fewest[set] = math.MaxInt
		low := set & -set
		for sub := set; sub > 0; sub = (sub - 1) & set {
			if sub&low != 0 && fits[sub] {
				fewest[set] = min(fewest[set], fewest[set&^sub]+1)
			}
		}
	}
	return fewest[1<<n-1]
}

func pick(workers []int, set int) []int {
	var jobs []int
	for i, j := range workers {
		if set>>i&1 == 1 {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// judge says whether workers of these jobs may share a GPU, straight from the definitions of C1..C5.
func (s *scene) judge(jobs []int) bool {
	seen := map[int]bool{}
	for i, a := range jobs {
		if seen[a] {
			return false // C5
		}
		seen[a] = true
		slowdown := 1.0
		for k, b := range jobs {
			if k != i {
				slowdown += s.added(a, b)
			}
		}
		if len(jobs) > 1 && 1/slowdown < s.jobs[a].Floor-floorTolerance {
			return false // C3
		}
	}
	return s.classesAgree(jobs) && s.memoryFits(jobs)
}

func (s *scene) added(a, b int) float64 {
	x, ok := s.table.Lookup(interference.Config{Model: s.jobs[a].Model, Batch: s.jobs[a].Batch})
	y, also := s.table.Lookup(interference.Config{Model: s.jobs[b].Model, Batch: s.jobs[b].Batch})
	if !ok || !also {
		return math.Inf(1)
	}
	return s.table.Added(x, y)
}

func (s *scene) classesAgree(jobs []int) bool {
	var n [3]int
	for _, j := range jobs {
		n[s.jobs[j].Class]++
	}
	if n[cluster.Guaranteed] == 0 {
		return n[cluster.BestEffort] <= 2
	}
	return len(jobs) == 1 || len(jobs) == 2 && n[cluster.BestEffort] == 1
}

// memoryFits enumerates every combination of levels.
func (s *scene) memoryFits(jobs []int) bool {
	limit := s.options.GPUMemory
	if limit == 0 {
		return true
	}
	var held, peak unit.Bytes
	for _, j := range jobs {
		held += s.profiles[j].Persistent
		peak += s.profiles[j].Peak()
	}
	if held > limit || peak <= limit {
		return held <= limit
	}
	return s.overflow(jobs, held) <= s.options.Epsilon+probabilityTolerance
}

func (s *scene) overflow(jobs []int, held unit.Bytes) float64 {
	if len(jobs) == 0 {
		if held > s.options.GPUMemory {
			return 1
		}
		return 0
	}
	levels := s.profiles[jobs[0]].Ephemeral
	if len(levels) == 0 {
		return s.overflow(jobs[1:], held)
	}
	sum := 0.0
	for _, l := range levels {
		sum += l.Fraction * s.overflow(jobs[1:], held+l.Bytes)
	}
	return sum
}
