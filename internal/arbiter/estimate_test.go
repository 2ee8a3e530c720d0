package arbiter

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/unit"
)

// alternating is a job of iterations of a length, of which it works a share; its gaps vary.
type alternating struct {
	class  Class
	cycle  time.Duration
	busy   float64
	jitter float64 // gaps vary by up to this share of their length
	kernel time.Duration
}

func (a *alternating) process(r *rand.Rand) *process {
	work := time.Duration(float64(a.cycle) * a.busy)
	kernel := min(a.kernel, work/2)
	kernels := int(work / kernel)
	gap := 0.0
	if a.busy < 1 {
		gap = float64(a.cycle) - float64(kernels)*float64(kernel)
	}
	return &process{class: a.class, kernel: kernel, kernels: kernels, gap: func() time.Duration {
		return time.Duration(gap * (1 + a.jitter*(2*r.Float64()-1)))
	}}
}

// ratesOf runs jobs beside each other on one GPU and returns what each keeps of its rate alone.
func ratesOf(t testing.TB, r *rand.Rand, jobs ...*alternating) []float64 {
	t.Helper()
	m := newMachine(t, 1, Options{})
	running := make([]*process, len(jobs))
	var span time.Duration
	for i, j := range jobs {
		running[i] = m.start(j.process(r), []int{0})
		span = max(span, 3*time.Second, 15*j.cycle)
	}
	m.run(unit.Time(span))
	rates := make([]float64, len(jobs))
	for i, p := range running {
		until := p.last // the end of the last iteration that it finished, unless these are few
		if p.done < 5 {
			until = m.now
		}
		alone := time.Duration(p.done*p.kernels)*p.kernel + p.past
		rates[i] = float64(alone) / float64(until)
	}
	return rates
}

// drawn is a random job: iterations of shortest to 1 s, any busy share, kernels of 0.05 to 1 ms.
func drawn(r *rand.Rand, class Class, shortest time.Duration) *alternating {
	a := &alternating{class: class, jitter: 0.3 * r.Float64(), busy: 0.05 + 0.94*r.Float64()}
	if r.IntN(6) == 0 {
		a.busy = 1
	}
	a.cycle = time.Duration(float64(shortest) * math.Pow(float64(time.Second/shortest), r.Float64()))
	a.kernel = time.Duration(5e4 * math.Pow(20, r.Float64()))
	return a
}

// classOf is the class of jobs by the name that estimates know.
var classOf = map[Class]cluster.Class{Guaranteed: cluster.Guaranteed, Burstable: cluster.Burstable, BestEffort: cluster.BestEffort}

// known is a kind that a book measured alone; iterations are counted or not.
func known(b *estimate.Book, key string, a *alternating, counted bool) estimate.Kind {
	w := estimate.Window{Length: time.Minute, Used: time.Minute, Utilisation: a.busy, Alone: true}
	if counted {
		w.Length = 1000 * a.cycle
		w.Used, w.Iterations = w.Length, 1000
	}
	for range 9 {
		b.Learn(key, w)
	}
	return estimate.Kind{Key: key, Class: classOf[a.class]}
}

// misses are how far predictions of rates are off.
type misses struct {
	n, held        int
	absolute, bias float64
	plain          float64 // of u_i u_l and u_i u_l / (1 - u_l)
}

func (e *misses) add(rate, mean, low, plain float64) {
	e.n++
	e.absolute += math.Abs(rate - mean)
	e.bias += rate - mean
	e.plain += math.Abs(rate - plain)
	if rate >= low-0.01 {
		e.held++
	}
}

// TestEstimates holds predictions of pairs against what the arbiter does with them.
func TestEstimates(t *testing.T) {
	for _, c := range []struct {
		name     string
		self     Class
		partner  Class
		shortest time.Duration
		counted  bool
		most     float64 // mean absolute error
		least    float64 // share of rates at or above the low bound
	}{
		{"peers, iterations counted", Burstable, Burstable, 20 * time.Millisecond, true, 0.06, 0.9},
		{"peers, short iterations too", Burstable, Burstable, 4 * time.Millisecond, true, 0.08, 0.9},
		{"peers, not counted", Burstable, Burstable, 20 * time.Millisecond, false, 0.06, 0.9},
		{"below, iterations counted", BestEffort, Burstable, 20 * time.Millisecond, true, 0.07, 0.9},
		{"below, short iterations too", BestEffort, Guaranteed, 4 * time.Millisecond, true, 0.12, 0.9},
		{"below, not counted", BestEffort, Burstable, 20 * time.Millisecond, false, 0.08, 0.85},
		{"above, iterations counted", Guaranteed, BestEffort, 4 * time.Millisecond, true, 0.02, 0.99},
	} {
		r := rand.New(rand.NewPCG(7, 11))
		var e misses
		for range 100 {
			x, y := drawn(r, c.self, c.shortest), drawn(r, c.partner, c.shortest)
			b := estimate.New(estimate.Options{})
			kx, ky := known(b, "x", x, c.counted), known(b, "y", y, c.counted)
			mean, low, _, _ := b.Predict(kx, []estimate.Kind{ky})
			plain := 1 / (1 + x.busy*y.busy)
			switch c.self {
			case BestEffort:
				plain = 1 / (1 + x.busy*y.busy/max(0.01, 1-y.busy))
			case Guaranteed:
				plain = 0.99
			}
			e.add(ratesOf(t, r, x, y)[0], mean, low, plain)
		}
		n := float64(e.n)
		t.Logf("%-30s mean error %.3f (bias %+.3f; the plain formula %.3f), low bound held %.3f", c.name, e.absolute/n, e.bias/n, e.plain/n, float64(e.held)/n)
		if e.absolute/n > c.most || float64(e.held)/n < c.least {
			t.Errorf("%s: mean error %.3f, want at most %.3f; low bound held %.3f, want %.3f", c.name, e.absolute/n, c.most, float64(e.held)/n, c.least)
		}
	}
}

// TestEstimatesOfThree: slowdowns of three equal jobs add up from those of pairs.
func TestEstimatesOfThree(t *testing.T) {
	for _, busy := range []float64{0.1, 0.2, 0.3, 0.5, 0.7, 1} {
		r := rand.New(rand.NewPCG(3, 4))
		a := &alternating{class: Burstable, cycle: 100 * time.Millisecond, busy: busy, jitter: 0.3, kernel: time.Millisecond}
		b := estimate.New(estimate.Options{})
		k := known(b, "a", a, true)
		mean, low, _, _ := b.Predict(k, []estimate.Kind{k, k})
		rates := ratesOf(t, r, a, a, a)
		least, sum := 1.0, 0.0
		for _, rate := range rates {
			least, sum = min(least, rate), sum+rate/3
		}
		t.Logf("three of busy %.1f: mean rate %.3f, least %.3f, predicted %.3f, at least %.3f", busy, sum, least, mean, low)
		if math.Abs(sum-mean) > 0.12 || sum < low {
			t.Errorf("three of busy %.1f keep %.3f, predicted %.3f, at least %.3f", busy, sum, mean, low)
		}
	}
}
