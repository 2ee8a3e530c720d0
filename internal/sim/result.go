// Package sim replays recorded jobs on a described cluster in virtual time. It is event driven (no ticks),
// deterministic, and runs the same placement code as everything else in weft.
package sim

import (
	"time"

	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// Outcome is what became of one job of a replay. Of a job that did not end (it could never run, or the replay was cut
// short) only Job, Submit and what had happened so far are known.
type Outcome struct {
	Job         int // index into the job list
	Submit      unit.Time
	Start, End  unit.Time     // first start, and end
	Run         time.Duration // how long it held GPUs, pauses to restart included
	Ended       bool
	Standalone  bool          // never shared a GPU, not even with a job of no duration
	Slowdown    float64       // run time over standalone run time, at least 1; 1 for a job of no duration
	Broken      bool          // was slower than its floor for any time
	Below       time.Duration // how long it worked below its floor
	Preemptions int
	Migrations  int
}

// JCT is the job's completion time: from submission to end.
func (o Outcome) JCT() time.Duration { return o.End.Sub(o.Submit) }

// Queue is how long the job was in the system without a GPU.
func (o Outcome) Queue() time.Duration { return o.JCT() - o.Run }

// Span is one stay of one worker on one GPU, for the Gantt strips of a report.
type Span struct {
	Job        int32
	GPU        int32 // index in the cluster, nodes in order
	Start, End unit.Time
}

// Usage is a step of the GPUs-in-use curve: from At on, GPUs have a resident. Steps ascend in time and each differs
// from the one before.
type Usage struct {
	At   unit.Time
	GPUs int
}

// Refusal is a job that could never run, and why.
type Refusal struct {
	Job    int
	Reason string
}

// Result is one replay: its figures, and what they were computed from.
type Result struct {
	Figures
	VCs      []VC      `json:"vcs,omitempty"` // per virtual cluster, in order of first node; empty for one pool
	Outcomes []Outcome `json:"-"`             // by job index
	Usage    []Usage   `json:"-"`
	Spans    []Span    `json:"-"` // by end, then GPU; only where asked for
	Refused  []Refusal `json:"-"` // in order of submission
}

// Figures are what people compare, over the jobs that ended. Completion time (JCT) is end - submission; queueing is
// completion time less the time on GPUs. The q-quantile of n values is sorted[int(n*q)], the convention of the
// published replays.
type Figures struct {
	Policy    string `json:"policy"`
	Placement string `json:"placement"`
	Share     string `json:"share"`

	AvgJCT    float64 `json:"avg_jct_s"`
	MedianJCT float64 `json:"median_jct_s"`
	P95JCT    float64 `json:"p95_jct_s"`
	P99JCT    float64 `json:"p99_jct_s"`
	AvgQueue  float64 `json:"avg_queue_s"`
	Makespan  float64 `json:"makespan_s"` // from the first submission to the last end

	GPUHours      float64  `json:"gpu_hours"`      // GPU time given out: a GPU in use counts once however many share it, a fraction as such
	PeakGPUs      int      `json:"peak_gpus"`      // most GPUs with a resident at once
	Utilisation   float64  `json:"utilisation"`    // GPU time with a resident / (GPUs x makespan), 0..1
	Allocation    float64  `json:"allocation_pct"` // time average of the GPU shares given out, at most one each
	Fragmentation *float64 `json:"fragmentation_pct"`

	MeanPerformance float64 `json:"mean_performance"`     // standalone GPU time over GPU time held, pauses included; 1 when no job ran
	BelowFloor      float64 `json:"below_floor_fraction"` // share of the GPU time held in which a job worked below its floor
	BrokenFloors    int     `json:"broken_floors"`        // jobs that were below their floor for any time
	Migrations      int     `json:"migrations"`           // times a running job changed GPUs
	Preemptions     int     `json:"preemptions"`          // times a running job lost its GPUs and had to wait
	OOM             int     `json:"oom"`

	Jobs            int     `json:"jobs"`
	Events          int     `json:"events"` // submissions and ends
	EventsPerSecond float64 `json:"events_per_second"`

	Excluded []trace.Exclusion `json:"excluded"`
	Partial  bool              `json:"partial,omitempty"` // cut short: what had ended by then
}

// VC is the figures of one virtual cluster.
type VC struct {
	VC          string  `json:"vc"`
	GPUs        int     `json:"gpus"`
	Jobs        int     `json:"jobs"`
	AvgJCT      float64 `json:"avg_jct_s"`
	MedianJCT   float64 `json:"median_jct_s"`
	P99JCT      float64 `json:"p99_jct_s"`
	AvgQueue    float64 `json:"avg_queue_s"`
	Makespan    float64 `json:"makespan_s"`
	GPUHours    float64 `json:"gpu_hours"`
	PeakGPUs    int     `json:"peak_gpus"`
	Utilisation float64 `json:"utilisation"`
}
