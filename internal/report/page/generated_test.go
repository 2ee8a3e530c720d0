package page

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// generated is a study of one queue of jobs of one GPU each: first come first served and shortest first on GPUs of
// their own, and two to a GPU. It is what a page looks like in earnest.
func generated(jobs, gpus int) Study {
	s := Study{
		Title:   "weft sim philly_jobs.csv",
		Command: "weft sim philly_jobs.csv --format philly --policy fifo,sjf --share never,floor --html report.html",
		Verdict: "Sharing with an 85 % floor finishes the same jobs with 12s of queueing instead of 1m45s, on 26 % fewer GPU-hours; no job was slower than its floor for long.",
		Notes: []string{"Slowdowns of shared jobs are predicted from pair measurements, not replayed.",
			"The log has no users, so nothing is said about fairness."},
		Table: report.Table{Columns: []report.Column{{Title: "POLICY"}, {Title: "SHARE"},
			{Title: "JCT AVG", Number: true, Meaning: "Average completion time: end less submission."},
			{Title: "MEDIAN", Number: true, Wide: true}, {Title: "P95", Number: true, Wide: true},
			{Title: "QUEUE", Number: true, Meaning: "Average time between submission and start."}, {Title: "PEAK", Number: true},
			{Title: "GPU-HOURS", Number: true, Meaning: "GPUs with a resident, over time."}, {Title: "UTIL", Number: true},
			{Title: "FRAG", Number: true, Wide: true}, {Title: "BROKEN", Number: true, Meaning: "Jobs slower than their floor."},
			{Title: "MOVES", Number: true, Wide: true}, {Title: "OOM", Number: true, Wide: true}}},
		Runs: []Run{queue("fifo never", jobs, gpus, 1, false), queue("sjf never", jobs, gpus, 1, true),
			queue("fifo floor", jobs, gpus, 2, false)},
	}
	s.Excluded = trace.Exclusions{{Reason: "never started", Rows: 1412}, {Reason: "CPU only", Rows: 6180}}
	for i, text := range [][]string{
		{"fifo", "never", "3h13m05s", "9m40s", "14h51m", "1m45s", "812", "1.62 M", "48 %", "6.1 %", "0", "0", "0"},
		{"sjf", "never", "3h12m23s", "9m38s", "14h50m", "1m03s", "812", "1.62 M", "48 %", "6.0 %", "0", "0", "0"},
		{"fifo", "floor", "3h21m40s", "10m05s", "15h22m", "12s", "598", "1.20 M", "65 %", "4.2 %", "3", "1,904", "0"}} {
		row := report.Cells(text...)
		for _, n := range [][]int{{}, {2, 3, 4}, {5, 6, 7, 8, 9}}[i] {
			row[n].Mark = report.Best
		}
		if i == 2 {
			row[10].Mark = report.Bad
		}
		s.Table.Rows = append(s.Table.Rows, row)
	}
	return s
}

// queue replays jobs on gpus with at most a number of residents each.
func queue(name string, jobs, gpus, residents int, shortest bool) Run {
	rng := rand.New(rand.NewPCG(42, 1))
	type job struct{ submit, length float64 }
	all, clock := make([]job, jobs), 0.0
	for i := range all {
		clock += rng.ExpFloat64() * 9000 / float64(gpus)
		all[i] = job{clock, min(math.Exp(rng.NormFloat64()*1.7+7.6), 2e5)}
	}
	r := Run{Name: name, Floor: 0.85}
	free := make([][]float64, gpus) // when each place of each GPU falls free
	for g := range free {
		free[g] = make([]float64, residents)
	}
	waiting, change, now := []int{}, map[unit.Time]int{}, 0.0
	next := 0
	for next < jobs || len(waiting) > 0 {
		g, p := earliest(free)
		now = max(now, free[g][p])
		if len(waiting) == 0 && next < jobs {
			now = max(now, all[next].submit)
		}
		for next < jobs && all[next].submit <= now {
			waiting = append(waiting, next)
			next++
		}
		if shortest {
			slices.SortStableFunc(waiting, func(a, b int) int { return int(all[a].length - all[b].length) })
		}
		id := waiting[0]
		waiting = waiting[1:]
		slow := 1.0
		if residents > 1 && rng.Float64() < 0.7 {
			slow += math.Abs(rng.NormFloat64()) * 0.07
		}
		end := now + all[id].length*slow
		free[g][p] = end
		r.JCTSeconds = append(r.JCTSeconds, end-all[id].submit)
		r.Slowdowns = append(r.Slowdowns, slow)
		r.Bars = append(r.Bars, Bar{Job: fmt.Sprintf("job-%d", id), GPU: g, Start: unit.Seconds(now), End: unit.Seconds(end),
			Below: slow > 1/r.Floor})
	}
	for _, s := range stripsOf(r) {
		until := unit.Time(0)
		for _, b := range sortedStays(s) {
			if b.start > until {
				change[b.start]++
				if until > 0 {
					change[until]--
				}
			}
			until = max(until, b.end)
		}
		change[until]--
	}
	r.Usage = usageOf(change)
	return r
}

func earliest(free [][]float64) (gpu, place int) {
	for g := range free {
		for p := range free[g] {
			if free[g][p] < free[gpu][place] {
				gpu, place = g, p
			}
		}
	}
	return gpu, place
}

func sortedStays(s strip) []stay {
	all := slices.Concat(s.lanes...)
	slices.SortFunc(all, func(a, b stay) int { return int(a.start - b.start) })
	return all
}

func usageOf(change map[unit.Time]int) []Step {
	var times []unit.Time
	for at := range change {
		times = append(times, at)
	}
	slices.Sort(times)
	var steps []Step
	in := 0
	for _, at := range times {
		in += change[at]
		steps = append(steps, Step{at, in})
	}
	return steps
}
