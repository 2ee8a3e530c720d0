package web

import (
	"log/slog"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weft.dev/weft/internal/box"
)

// mostScrapes may run at once.
const mostScrapes = 4

// newMetrics serves the figures of a machine: the daemon's own, those of its process, and the agent's.
func newMetrics(b Box, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(gatherer(b, log), promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: mostScrapes,
	})
}

func gatherer(b Box, log *slog.Logger) prometheus.Gatherer {
	own := prometheus.NewRegistry()
	own.MustRegister(&figures{b}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return prometheus.Gatherers{own, agentFigures(b, log)}
}

// figures (of a Server) answers a scrape.
func (s *Server) figures(w http.ResponseWriter, r *http.Request, _ box.Caller) error {
	s.metrics.ServeHTTP(w, r)
	return nil
}

// figures collects the daemon's series at each scrape, so that those of a job end with it.
type figures struct{ box Box }

func series(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("weft_"+name, help, labels, nil)
}

// The daemon's series. A job's label is job_id: Prometheus itself calls what it scrapes a job.
var (
	buildInfo   = series("build_info", "1, with the version that runs.", "version", "go_version")
	startTime   = series("start_time_seconds", "When the daemon started, in seconds since 1970.")
	gpus        = series("gpus", "GPUs by health.", "state")
	gpusInUse   = series("gpus_in_use", "GPUs with at least one job.")
	workers     = series("workers", "Workers that run. Each would need a GPU of its own without sharing.")
	jobsNow     = series("jobs", "Jobs that are not done, by state.", "state")
	belowFloor  = series("jobs_below_floor", "Running jobs that are observed below their floor.")
	degraded    = series("degraded_conditions", "What is wrong with the machine, as weft status lists it.")
	gpuBusy     = series("gpu_busy_ratio", "Share of the last seconds in which a GPU computed, as the driver says.", "gpu")
	gpuHeat     = series("gpu_temperature_celsius", "Temperature of a GPU.", "gpu")
	gpuInUse    = series("gpu_memory_in_use_bytes", "Memory in use on a GPU, of all processes.", "gpu")
	jobRate     = series("job_rate_ratio", "Rate of a job as a share of its speed alone: observed, or as it was predicted when the job was placed.", "job_id", "name", "kind")
	jobFloor    = series("job_floor_ratio", "Least share of its speed alone that a running job is to have.", "job_id", "name")
	jobBelow    = series("job_below_floor_seconds_total", "Time that a job was observed below its floor.", "job_id", "name")
	queueJobs   = series("queue_jobs", "Waiting jobs by the reason why they wait.", "reason")
	queueOldest = series("queue_oldest_wait_seconds", "How long the job that waits longest has waited, 0 when none waits.")
	jobsTotal   = series("jobs_total", "Jobs done, by outcome.", "outcome")
	operations  = series("operations_total", "Operations on jobs and GPUs, by what came of them.", "operation", "outcome")
	queueWait   = series("queue_wait_seconds", "From a job's submission to its first start.", "class")
	planTime    = series("plan_duration_seconds", "Time to decide who starts and who moves.")
)

// Describe implements prometheus.Collector.
func (f *figures) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{buildInfo, startTime, gpus, gpusInUse, workers, jobsNow, belowFloor, degraded, gpuBusy, gpuHeat, gpuInUse,
		jobRate, jobFloor, jobBelow, queueJobs, queueOldest, jobsTotal, operations, queueWait, planTime} {
		out <- d
	}
}

// sink takes the values of one scrape.
type sink struct{ out chan<- prometheus.Metric }

func (s sink) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func (s sink) counter(d *prometheus.Desc, value float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}

func (s sink) histogram(d *prometheus.Desc, h box.Histogram, labels ...string) {
	buckets := make(map[float64]uint64, len(h.Bounds))
	var below uint64
	for i, bound := range h.Bounds {
		below += h.Counts[i]
		buckets[bound] = below
	}
	s.out <- prometheus.MustNewConstHistogram(d, h.Count(), h.Sum, buckets, labels...)
}

// Collect implements prometheus.Collector.
func (f *figures) Collect(out chan<- prometheus.Metric) {
	s := sink{out}
	status := f.box.Status()
	s.gauge(buildInfo, 1, status.Version, runtime.Version())
	s.gauge(startTime, float64(status.Since.UnixNano())/1e9)
	s.gauge(gpusInUse, float64(status.InUse))
	s.gauge(workers, float64(status.Workers))
	s.gauge(belowFloor, float64(status.BelowFloor))
	s.gauge(degraded, float64(len(status.Degraded)))
	f.gpus(s)
	f.jobs(s, time.Now())
	f.past(s)
}

func (f *figures) gpus(s sink) {
	count := map[string]float64{"ok": 0, "draining": 0, "drained": 0, "unhealthy": 0}
	list := f.box.GPUs()
	for i := range list {
		g := &list[i]
		n := strconv.Itoa(g.Index)
		count[g.Health]++
		s.gauge(gpuInUse, float64(g.InUse), n)
		if g.Busy != nil {
			s.gauge(gpuBusy, *g.Busy, n)
		}
		if g.Temperature != nil {
			s.gauge(gpuHeat, *g.Temperature, n)
		}
	}
	for state, n := range count {
		s.gauge(gpus, n, state)
	}
}

func (f *figures) jobs(s sink, now time.Time) {
	states := map[box.State]float64{box.Waiting: 0, box.Starting: 0, box.Running: 0, box.Stopping: 0}
	reasons := map[string]float64{}
	oldest := time.Duration(0)
	list := f.box.Jobs(box.Caller{UID: everybody}, false, "")
	for i := range list {
		j := &list[i]
		states[j.State]++
		if j.State == box.Waiting {
			oldest = max(oldest, now.Sub(j.Submitted))
			reasons[waitsFor(j)]++
			continue
		}
		s.job(j)
	}
	for state, n := range states {
		s.gauge(jobsNow, n, string(state))
	}
	for reason, n := range reasons {
		s.gauge(queueJobs, n, reason)
	}
	s.gauge(queueOldest, oldest.Seconds())
}

// waitsFor is the reason of a job that waits.
func waitsFor(j *box.Job) string {
	if j.Reason == nil || j.Reason.Code == "" {
		return "Planning"
	}
	return string(j.Reason.Code)
}

// job tells of a job that has GPUs.
func (s sink) job(j *box.Job) {
	id := j.ID.String()
	s.gauge(jobFloor, j.Floor, id, j.Name)
	s.counter(jobBelow, j.Below, id, j.Name)
	if j.Rate != nil {
		s.gauge(jobRate, *j.Rate, id, j.Name, "observed")
	}
	if j.Predicted != nil {
		s.gauge(jobRate, j.Predicted.Rate, id, j.Name, "predicted")
	}
}

func (f *figures) past(s sink) {
	past := f.box.Figures()
	s.histogram(planTime, past.Plan)
	for class, h := range past.QueueWait {
		s.histogram(queueWait, h, class.String())
	}
	for _, o := range []box.Outcome{box.Succeeded, box.Failed, box.Stopped, box.TimedOut, box.Cancelled, box.Lost} {
		s.counter(jobsTotal, float64(past.Outcomes[o]), string(o))
	}
	for _, key := range slices.SortedFunc(maps.Keys(past.Operations), box.OperationKey.Compare) {
		s.counter(operations, float64(past.Operations[key]), string(key.Verb), key.Outcome)
	}
}
