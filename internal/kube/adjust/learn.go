package adjust

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/unit"
)

// lesson is what was seen of the jobs of one profile that had their GPUs to themselves.
type lesson struct {
	peak       unit.Bytes
	iterations int64 // since they were told
	windows    int
	gpu        string           // short name of the model of the GPUs
	told       v1alpha1.Figures // last
	news       bool
}

// Learned is what a profile teaches by its jobs.
type Learned struct {
	Profile    types.NamespacedName
	Figures    v1alpha1.Figures
	Iterations int64 // since the last time
}

// Figures of learning.
const (
	lessonWindows = 6    // that a job must have run alone before others of its profile may rely on it
	spare         = 1.1  // times the peak that was seen: the next job may want a little more
	changed       = 0.05 // of a figure is worth writing again
	percent       = 100
)

// learn takes what a window shows of a profile's memory and iterations.
func (l *look) learn(s *seen, w estimate.Window) {
	if _, ok := profileOf(s.job.Key); !ok || !w.Alone {
		return
	}
	x := l.lessons[s.job.Key]
	if x == nil {
		x = &lesson{gpu: modelOf(l.q.GPUs[s.state.On[0]].Model)}
		l.lessons[s.job.Key] = x
	}
	x.peak = max(x.peak, unit.Bytes(s.window.Peak.Value()))
	x.iterations += s.window.Iterations
	x.windows++
	x.news = true
}

// modelOf is the short name of a GPU in a profile: the catalogue's, else made of the driver's name; "" where that gives none.
func modelOf(product string) string {
	if name := catalogue.GPUNamed(product); name != "" {
		return name
	}
	name := strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(product), " ", "-"), "nvidia-")
	if !shortName.MatchString(name) {
		return ""
	}
	return name
}

var shortName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,38}[a-z0-9])?$`)

// teach tells of profiles what was learned of them since the last time, once that is enough to rely on.
func (l *look) teach() {
	for key, x := range l.lessons {
		if !x.news || x.windows < lessonWindows || x.peak == 0 {
			continue
		}
		x.news = false
		known, _ := l.book.Alone(key)
		if f := x.figures(known); differ(f, x.told) {
			x.told = f
			name, _ := profileOf(key)
			l.found.Profiles = append(l.found.Profiles, Learned{name, f, x.iterations})
			x.iterations = 0
		}
	}
	slices.SortFunc(l.found.Profiles, func(a, b Learned) int { return cmp.Compare(a.Profile.String(), b.Profile.String()) })
}

// figures are a lesson as a profile states it.
func (x *lesson) figures(known estimate.Alone) v1alpha1.Figures {
	const step = float64(64 * unit.MiB)
	peak := math.Ceil(float64(x.peak)*spare/step) * step
	f := v1alpha1.Figures{Memory: &v1alpha1.ProfileMemory{Peak: *resource.NewQuantity(int64(peak), resource.BinarySI)}}
	if known.Busy > 0 {
		v := int32(min(percent, max(1, math.Round(known.Busy*percent))))
		f.UtilisationPercent = &v
	}
	if known.Rate > 0 && x.gpu != "" {
		f.Rates = []v1alpha1.Rate{{GPUModel: x.gpu, StepsPerSecond: v1alpha1.NewFraction(known.Rate)}}
	}
	return f
}

// differ says whether figures say something else than before.
func differ(a, b v1alpha1.Figures) bool {
	if b.Memory == nil || a.Memory.Peak.Cmp(b.Memory.Peak) != 0 {
		return true
	}
	return apart(busy(a), busy(b)) || apart(rate(a), rate(b))
}

func apart(a, b float64) bool { return math.Abs(a-b) > changed*max(a, b) }

func busy(f v1alpha1.Figures) float64 {
	if f.UtilisationPercent == nil {
		return 0
	}
	return float64(*f.UtilisationPercent)
}

func rate(f v1alpha1.Figures) float64 {
	if len(f.Rates) == 0 {
		return 0
	}
	return f.Rates[0].StepsPerSecond.Float(0)
}

// profileOf is the profile that a key stands for: "ml/profile/bert".
func profileOf(key string) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(key, "/profile/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}
