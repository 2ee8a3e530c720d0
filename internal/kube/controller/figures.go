package controller

import (
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/kube/adjust"
	"weft.dev/weft/internal/kube/queue"
)

// figures are what the controller counts. Those of GPUs and of the queue are of the last plan.
type figures struct {
	registry   *prometheus.Registry
	gpus       *prometheus.GaugeVec
	residents  *prometheus.GaugeVec
	usable     *prometheus.GaugeVec
	reserved   *prometheus.GaugeVec
	queue      *prometheus.GaugeVec
	oldest     prometheus.Gauge
	wanted     prometheus.Gauge
	operations *prometheus.CounterVec
	waits      *prometheus.HistogramVec
	plans      prometheus.Histogram
	rates      *prometheus.GaugeVec
	floors     *prometheus.GaugeVec
	below      *prometheus.CounterVec

	mu sync.Mutex // a scrape sees one plan, not the change from one to the next
}

func newFigures(version string) *figures {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weft_" + name, Help: help}, labels)
	}
	f := &figures{
		registry:  prometheus.NewRegistry(),
		gpus:      gauge("gpus", "GPUs that weft serves, by what is with them: idle, shared, native, or why they are closed.", "state"),
		residents: gauge("gpu_residents", "Workers on a GPU that share it.", "gpu"),
		usable:    gauge("gpu_memory_usable_bytes", "Memory of a GPU that workers may use.", "gpu"),
		reserved:  gauge("gpu_memory_reserved_bytes", "Memory of a GPU that is reserved for workers.", "gpu"),
		queue:     gauge("queue_jobs", "Jobs that wait, by reason.", "reason"),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weft_queue_oldest_wait_seconds",
			Help: "How long the job that waits longest has waited, 0 when none waits."}),
		wanted: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weft_queue_gpus_wanted",
			Help: "Empty GPUs that the jobs would take, shared, which have waited for room for 10 seconds; 256 stands for more."}),
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weft_operations_total",
			Help: "Placements and evictions, by what came of them."},
			[]string{"operation", "outcome"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "weft_queue_wait_seconds",
			Help:    "From a Pod's creation to its release to the scheduler.",
			Buckets: box.WaitBounds()}, []string{"class"}),
		plans: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weft_plan_duration_seconds",
			Help:    "Time to read the cluster and decide who starts.",
			Buckets: box.PlanBounds()}),
	}
	f.rates = gauge("job_rate_ratio", "Rate of a Pod's job in the last window, as a share of its speed alone.", "namespace", "pod", "kind")
	f.floors = gauge("job_floor_ratio", "Least share of its speed alone that a Pod's job is to keep.", "namespace", "pod")
	f.below = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weft_job_below_floor_seconds_total",
		Help: "Time that a Pod's job was observed below its floor, as far as this controller saw it."}, []string{"namespace", "pod"})
	info := gauge("build_info", "1, with the version that runs.", "version", "go_version")
	info.WithLabelValues(version, runtime.Version()).Set(1)
	f.registry.MustRegister(info, f.gpus, f.residents, f.usable, f.reserved, f.queue, f.oldest, f.wanted, f.operations, f.waits, f.plans, f.rates, f.floors, f.below,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return f
}

// planned takes the outcome of a plan.
func (f *figures) planned(q *queue.Queue, d *dispatch.Decision, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plans.Observe(took.Seconds())
	for _, v := range []*prometheus.GaugeVec{f.gpus, f.residents, f.usable, f.reserved, f.queue} {
		v.Reset()
	}
	for g, use := range q.Uses() {
		name := q.GPUs[g].String()
		f.gpus.WithLabelValues(use.State).Inc()
		f.usable.WithLabelValues(name).Set(float64(q.GPUs[g].Memory))
		f.residents.WithLabelValues(name).Set(float64(use.Residents))
		f.reserved.WithLabelValues(name).Set(float64(use.Reserved))
	}
	oldest := time.Duration(0)
	for _, w := range d.Waits {
		j := q.Jobs[w.Job]
		reason := string(w.Reason.Code)
		f.queue.WithLabelValues(reason).Inc()
		oldest = max(oldest, q.State.Now.Sub(j.Members[0].Pod.CreationTimestamp.Time))
	}
	f.oldest.Set(oldest.Seconds())
}

// rated takes what jobs keep of their speed, for each of their Pods.
func (f *figures) rated(q *queue.Queue, a *adjust.Adjuster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rates.Reset()
	f.floors.Reset()
	f.below.Reset()
	for i := range q.State.Jobs {
		j := q.Jobs[q.State.Jobs[i].ID]
		rate, ok := a.Rate(j)
		if !ok {
			continue
		}
		for _, m := range j.Members {
			f.rates.WithLabelValues(m.Pod.Namespace, m.Pod.Name, "observed").Set(rate)
			f.floors.WithLabelValues(m.Pod.Namespace, m.Pod.Name).Set(q.State.Jobs[i].Floor)
			f.below.WithLabelValues(m.Pod.Namespace, m.Pod.Name).Add(a.Below(j).Seconds())
		}
	}
}

// placed counts a Pod that was released.
func (f *figures) placed(m *queue.Member, now time.Time) {
	f.count("place", "ok")
	f.waits.WithLabelValues(m.Request.Class.String()).Observe(max(0, now.Sub(m.Pod.CreationTimestamp.Time).Seconds()))
}

func (f *figures) count(operation, outcome string) {
	f.operations.WithLabelValues(operation, outcome).Inc()
}

// Gather implements prometheus.Gatherer.
func (f *figures) Gather() ([]*dto.MetricFamily, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.registry.Gather()
}

// mostScrapes may run at once.
const mostScrapes = 4

// Handler serves /metrics, /healthz (the process answers) and /readyz (nothing that is to be ready says that it is not).
func (c *Controller) Handler(ready ...func() error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.figures, promhttp.HandlerOpts{MaxRequestsInFlight: mostScrapes}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		for _, missing := range ready {
			if err := missing(); err != nil {
				answer(w, http.StatusServiceUnavailable, err.Error())
				return
			}
		}
		answer(w, http.StatusOK, "ok")
	})
	return mux
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n")) // who asked is gone, if anything
}
