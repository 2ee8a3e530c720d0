package agent

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// escaper writes a label's value as that form has it.
var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// series writes metrics in the text form of Prometheus. A job's series end with the job.
type series struct{ b strings.Builder }

// family begins a metric.
func (s *series) family(name, kind, help string) {
	fmt.Fprintf(&s.b, "# HELP weft_%s %s\n# TYPE weft_%s %s\n", name, help, name, kind)
}

// value writes one value. labels are names and values in turn.
func (s *series) value(name string, value float64, labels ...string) {
	s.b.WriteString("weft_" + name)
	for i := 0; i+1 < len(labels); i += 2 {
		if i == 0 {
			s.b.WriteByte('{')
		} else {
			s.b.WriteByte(',')
		}
		s.b.WriteString(labels[i] + "=" + `"` + escaper.Replace(strings.ToValidUTF8(labels[i+1], "?")) + `"`)
	}
	if len(labels) > 0 {
		s.b.WriteByte('}')
	}
	s.b.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}

// histogram writes a histogram of durations in buckets of a factor of 4, from 16 us to 17 s.
func (s *series) histogram(name string, h *histogram, labels ...string) {
	for d := 16 * time.Microsecond; d < 20*time.Second; d *= 4 {
		s.value(name+"_bucket", float64(h.upTo(d)), append([]string{"le", strconv.FormatFloat(d.Seconds(), 'g', 6, 64)}, labels...)...)
	}
	s.value(name+"_bucket", float64(h.count), append([]string{"le", "+Inf"}, labels...)...)
	s.value(name+"_sum", h.sum.Seconds(), labels...)
	s.value(name+"_count", float64(h.count), labels...)
}

// metrics is all series as text.
func metrics(stats *Stats, c *counts) string {
	var s series
	s.gpus(stats)
	s.counted(c)
	s.jobs(stats)
	s.byClass("token_wait_seconds", "From the request for a token to its grant.", &c.wait)
	s.byClass("token_hold_seconds", "From the grant of a token to its release.", &c.hold)
	s.byClass("token_drain_seconds", "From the demand for a token to its release, by the class of its holder.", &c.drain)
	s.byClass("token_preemption_seconds", "From the request for a token that a lower class held to its grant.", &c.preemption)
	s.family("messages_total", "counter", "Messages between the agent and processes.")
	s.value("messages_total", float64(stats.MessagesIn), "direction", "in")
	s.value("messages_total", float64(stats.MessagesOut), "direction", "out")
	s.family("handover_seconds", "gauge", "What passing a token on costs, as measured.")
	s.value("handover_seconds", stats.Handover/1000)
	return s.b.String()
}

// byClass writes a distribution for each class, of all jobs ever.
func (s *series) byClass(name, help string, of *[3]histogram) {
	s.family(name, "histogram", help)
	for c := range of {
		s.histogram(name, &of[c], "class", Class(c).String())
	}
}

// counted writes what is counted on each GPU, of all jobs ever.
func (s *series) counted(c *counts) {
	s.family("token_overruns_total", "counter", "Tokens that were not given back in time.")
	for g := range c.of {
		for class, n := range c.of[g].overruns {
			s.value("token_overruns_total", float64(n), "gpu", strconv.Itoa(g), "class", Class(class).String())
		}
	}
	s.family("ledger_stall_seconds_total", "counter", "Time that jobs waited for memory of a GPU.")
	for g := range c.of {
		s.value("ledger_stall_seconds_total", c.of[g].stall.Seconds(), "gpu", strconv.Itoa(g))
	}
	s.family("oom_total", "counter", "Allocations that were refused, as the job was at its own limit.")
	for g := range c.of {
		s.value("oom_total", float64(c.of[g].refused), "gpu", strconv.Itoa(g))
	}
}

func (s *series) gpus(stats *Stats) {
	each := func(name, kind, help string, of func(g *GPUState) float64) {
		s.family(name, kind, help)
		for i := range stats.GPUs {
			s.value(name, of(&stats.GPUs[i]), "gpu", strconv.Itoa(stats.GPUs[i].GPU))
		}
	}
	each("gpu_residents", "gauge", "Jobs on a GPU.", func(g *GPUState) float64 { return float64(len(g.Residents)) })
	each("gpu_memory_usable_bytes", "gauge", "Memory of a GPU that jobs may have.", func(g *GPUState) float64 { return float64(g.Usable) })
	each("gpu_memory_reserved_bytes", "gauge", "Memory that is always a job's own.", func(g *GPUState) float64 { return float64(g.Reserved) })
	each("gpu_memory_ephemeral_bytes", "gauge", "Memory lent out of the pool.", func(g *GPUState) float64 { return float64(g.Pool - g.PoolFree) })
	each("gpu_busy_seconds_total", "counter", "Time in which a token was held.", func(g *GPUState) float64 { return g.Held })
	each("gpu_foreign_processes", "gauge", "Processes on a GPU that are of no job.", func(g *GPUState) float64 { return float64(len(g.Foreign)) })
}

func (s *series) jobs(stats *Stats) {
	each := func(name, kind, help string, of func(j *Job) float64) {
		s.family(name, kind, help)
		for i := range stats.Jobs {
			j := &stats.Jobs[i]
			labels := []string{"allocation", strconv.FormatUint(j.ID, 10), "name", j.Name, "class", j.Class.String()}
			if c := j.Container; c != nil {
				labels = append(labels, "namespace", c.Namespace, "pod", c.Pod, "container", c.Name)
			}
			s.value(name, of(j), labels...)
		}
	}
	each("job_token_held_seconds_total", "counter", "Time with the token.", func(j *Job) float64 { return j.Held })
	each("job_gpu_used_seconds_total", "counter", "Time computing, by the job's own account.", func(j *Job) float64 { return j.Used })
	each("job_lost_seconds_total", "counter", "Estimated time that lower classes cost it.", func(j *Job) float64 { return j.Lost })
	each("job_stall_seconds_total", "counter", "Time waited for memory.", func(j *Job) float64 { return j.Stall })
	each("job_launches_total", "counter", "Launches.", func(j *Job) float64 { return float64(j.Launches) })
	each("job_iterations_total", "counter", "Iterations.", func(j *Job) float64 { return float64(j.Iterations) })
	each("job_token_overruns_total", "counter", "Tokens that it did not give back in time.", func(j *Job) float64 { return float64(j.Overruns) })
	each("job_refused_allocations_total", "counter", "Allocations refused at the job's own limit.", func(j *Job) float64 { return float64(j.Refused) })
	each("job_escaped_processes", "gauge", "Processes of a job that use a GPU without weft's library.", func(j *Job) float64 { return float64(len(j.Escaped)) })
}
