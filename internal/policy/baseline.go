package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/placement"
	"weft.dev/weft/internal/profile"
)

// BaselineOptions are what the sharing rules of the literature may know. Each uses what its paper has and no more.
type BaselineOptions struct {
	// Options limit memory and residents. NoFloors and Admit are the baseline's own, and the rules that pair jobs hold
	// at most two residents whatever MaxResidents says.
	placement.Options

	Profiles []profile.Profile   // memory of each job; nil: unknown
	Table    *interference.Table // pairs as placement believes them; a pair that it does not have may not share
	Truth    *interference.Table // pairs as they are; nil: as believed

	// Utilisation is the share of a GPU that a configuration keeps busy alone, in (0, 1]; 0, or no function: unknown.
	// A job's own GPUUtil goes first.
	Utilisation func(interference.Config) float64

	Window time.Duration // how long unpack watches a pair before it judges; above 0 for unpack
	Pause  time.Duration // how long a moved job makes no progress
}

// baseline is a rule by name.
type baseline struct {
	name string
	make func(cluster.Cluster, []cluster.Job, BaselineOptions) Placer
}

// baselines, the simplest rule first.
var baselines = []baseline{
	{"peak", newPeak}, {"always", newAlways}, {"utilcap", newUtilCap}, {"classes", newClasses}, {"bsbf", newShareOrWait},
	{"unpack", newUnpacking},
}

// BaselineNames are the names that NewBaseline knows:
//
//   - peak: weft's own floors, with the peaks of memory added up;
//   - always: whatever fits in memory shares;
//   - utilcap: GPU utilisations add up to at most 1 (as in Horus);
//   - classes: tiny, medium and jumbo jobs in pairs (as in Lucid);
//   - bsbf: in pairs, where that ends jobs sooner on average than waiting (SJF-BSBF);
//   - unpack: in pairs at a venture, parted again where a pair does no more work than one job (as in Gandiva).
func BaselineNames() []string {
	names := make([]string, len(baselines))
	for i, b := range baselines {
		names[i] = b.name
	}
	return names
}

// NewBaseline makes the placer of a rule for jobs on a cluster. Jobs run at the rates of the truth. Peak, always,
// utilcap and classes say who may share; on which of the GPUs that may take it a worker then goes is weft's greedy
// step, so that rules are compared and not searches. It fails for an unknown name, for residents out of range and for a
// window or a pause out of range.
func NewBaseline(name string, c cluster.Cluster, jobs []cluster.Job, o BaselineOptions) (Placer, error) {
	i := slices.IndexFunc(baselines, func(b baseline) bool { return b.name == name })
	switch {
	case i < 0:
		return nil, fmt.Errorf("unknown sharing rule %q, want one of %s", name, strings.Join(BaselineNames(), ", "))
	case o.MaxResidents < 1 || o.MaxResidents > placement.MaxMaxResidents:
		return nil, fmt.Errorf("%d residents, want 1 to %d", o.MaxResidents, placement.MaxMaxResidents)
	case o.Pause < 0:
		return nil, fmt.Errorf("pause of %v, want 0 or more", o.Pause)
	case o.Window <= 0 && name == "unpack":
		return nil, fmt.Errorf("window of %v, want more than 0", o.Window)
	}
	if o.Table == nil {
		o.Table = interference.NewTable()
	}
	o.NoFloors, o.Admit = false, nil
	return baselines[i].make(c, jobs, o), nil
}

// sharing is the placer of the rule that the options describe.
func (o *BaselineOptions) sharing(c cluster.Cluster, jobs []cluster.Job) *Sharing {
	s := NewSharing(placement.NewProblem(jobs, o.Table, o.Profiles, o.Options), c)
	if o.Truth == nil {
		o.Truth = o.Table
	}
	s.RunAt(o.Truth)
	return s
}

func newPeak(c cluster.Cluster, jobs []cluster.Job, o BaselineOptions) Placer {
	o.Epsilon = 0
	return o.sharing(c, jobs)
}

func newAlways(c cluster.Cluster, jobs []cluster.Job, o BaselineOptions) Placer {
	o.NoFloors = true
	return o.sharing(c, jobs)
}

// idle is up to n GPUs without a resident, by index.
func (s *Sharing) idle(n int) []cluster.GPU {
	var gpus []cluster.GPU
	for i := 0; i < len(s.slots) && len(gpus) < n; i++ {
		if g := cluster.GPU(i); len(s.packer.Residents(g)) == 0 {
			gpus = append(gpus, g)
		}
	}
	return gpus
}

// single is the GPUs with one resident that would take a worker of the job, by index.
func (s *Sharing) single(job int) []cluster.GPU {
	var gpus []cluster.GPU
	for i := range s.slots {
		if g := cluster.GPU(i); len(s.packer.Residents(g)) == 1 && s.packer.Takes(job, g) {
			gpus = append(gpus, g)
		}
	}
	return gpus
}

// paired limits residents to two, for rules that are made for pairs.
func (o *BaselineOptions) paired() { o.MaxResidents = min(2, o.MaxResidents) }
