package local

import (
	"fmt"
	"slices"
	"time"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/estimate"
)

// view is what was observed of a job since it was started.
type view struct {
	rate       *float64 // of the last window
	busy       *float64
	tokenWait  *float64 // p99, ms
	cooperates bool
	below      bool // its last window was below its floor
	said       bool // it was said that it is below

	last   agent.Job // at the begin of the window
	since  time.Time
	shared bool // somebody was beside it in this window
	stalls [2]float64
	waits  [2]float64 // shares of the last window: token, memory
}

// look takes the agent's figures.
func (b *Box) look(now time.Time) {
	b.hearAgent()
	answer, err := b.agent.Ask(b.ctx, agent.Request{Op: agent.OpStats})
	if err != nil || answer.Stats == nil {
		b.setDegraded("agent", fmt.Sprintf("the agent does not answer: %v", err))
		return
	}
	b.setDegraded("agent", "")
	foreign := make([][]box.Foreign, len(answer.Stats.GPUs))
	for g := range answer.Stats.GPUs {
		foreign[g] = foreignOf(answer.Stats.GPUs[g].Foreign)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := b.lookAtGPUs(answer.Stats, foreign)
	b.lookAtJobs(answer.Stats, now)
	b.account(now)
	b.history.add(b, now)
	if changed {
		b.plan()
	}
	b.touch()
}

// setDegraded says, or takes back, what is wrong.
func (b *Box) setDegraded(what, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if text == "" {
		delete(b.degraded, what)
		return
	}
	b.degraded[what] = text
}

// lookAtGPUs files what is seen of the GPUs, and says whether something changed that plans depend on. The mutex is held.
func (b *Box) lookAtGPUs(stats *agent.Stats, foreign [][]box.Foreign) bool {
	changed := false
	for g := range b.state.gpus {
		if g >= len(stats.GPUs) {
			break
		}
		seen, s := &stats.GPUs[g], &b.state.gpus[g]
		changed = changed || (s.xid == nil) != (seen.XID == nil) || !slices.Equal(s.foreign, foreign[g])
		busy := seen.Utilisation
		s.xid, s.busy, s.reserved, s.foreign, s.inUse, s.token = seen.XID, &busy, seen.Reserved, foreign[g], 0, b.holderOf(seen.Holder)
		for _, f := range s.foreign {
			s.inUse += f.Bytes
		}
	}
	for i := range stats.Jobs {
		for _, m := range stats.Jobs[i].Memory {
			b.state.gpus[m.GPU].inUse += m.Used
		}
	}
	return changed
}

// lookAtJobs files what is seen of the jobs. The mutex is held.
func (b *Box) lookAtJobs(stats *agent.Stats, now time.Time) {
	byAlloc := map[uint64]*agent.Job{}
	for i := range stats.Jobs {
		byAlloc[stats.Jobs[i].ID] = &stats.Jobs[i]
	}
	for _, id := range b.order {
		j := b.jobs[id]
		seen := byAlloc[j.Alloc]
		if j.live == nil || seen == nil {
			continue
		}
		v := &j.view
		b.countTroubles(j, seen, now)
		if v.since.IsZero() {
			v.last, v.since = *seen, now
		}
		v.cooperates = seen.Cooperates
		v.shared = v.shared || len(b.beside(&j.record)) > 0
		if seen.Wait.Count > 0 {
			p99 := seen.Wait.P99
			v.tokenWait = &p99
		}
	}
	b.state.at = now
}

// countTroubles books stalls and overruns of the last hour with the GPUs. The mutex is held.
func (b *Box) countTroubles(j *job, seen *agent.Job, now time.Time) {
	stall, overruns := seen.Stall-j.view.stalls[0], float64(seen.Overruns)-j.view.stalls[1]
	j.view.stalls = [2]float64{seen.Stall, float64(seen.Overruns)}
	for _, g := range j.On {
		b.state.gpus[g].stall.add(now, max(0, stall)/float64(len(j.On)))
		b.state.gpus[g].overruns.add(now, max(0, overruns))
	}
}

// account books the GPU time that users have, and lets what they had count less and less. The mutex is held.
func (b *Box) account(now time.Time) {
	passed := now.Sub(b.accounted)
	if b.accounted.IsZero() || passed < 0 {
		passed = 0
	}
	b.accounted = now
	gpus := map[string]int{}
	for _, id := range b.order {
		if j := b.jobs[id]; j.State.Live() {
			gpus[j.User] += len(j.On)
			b.used[j.User] += 0 // he is known from now on
		}
	}
	for user, used := range b.used {
		if b.used[user] = dispatch.Grow(used, gpus[user], passed); b.used[user] < 1 && gpus[user] == 0 {
			delete(b.used, user)
		}
	}
}

// observe ends a window: each job's rate is reckoned from the figures of the agent, predictions are corrected by it, and jobs are
// moved where one is believed below its floor.
func (b *Box) observe(now time.Time) {
	answer, err := b.agent.Ask(b.ctx, agent.Request{Op: agent.OpStats})
	if err != nil || answer.Stats == nil {
		return // it is said by look
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	news := 0.0
	busy := map[int]float64{}
	for _, g := range answer.Stats.GPUs {
		busy[g.GPU] = g.Utilisation
	}
	for i := range answer.Stats.Jobs {
		seen := &answer.Stats.Jobs[i]
		if j := b.jobs[b.holderOf(seen.ID)]; j != nil && j.live != nil && j.State == box.Running {
			news = max(news, b.observeJob(j, seen, busy, now))
		}
	}
	if b.book.Review(now, b.counts()) {
		news = 1
	}
	if news > estimate.News {
		b.plan()
	}
}

// counts is how many jobs of each kind there are. The mutex is held.
func (b *Box) counts() []estimate.Count {
	at := map[estimate.Kind]int{}
	var counts []estimate.Count
	for _, id := range b.order {
		j := b.jobs[id]
		if j.State == box.Done {
			continue
		}
		k := j.kind()
		i, known := at[k]
		if !known {
			i = len(counts)
			at[k] = i
			counts = append(counts, estimate.Count{Kind: k, Floor: j.Floor})
		}
		counts[i].Jobs++
		counts[i].Floor = min(counts[i].Floor, j.Floor)
	}
	return counts
}

// observeJob ends a window of one job. The mutex is held.
func (b *Box) observeJob(j *job, seen *agent.Job, busy map[int]float64, now time.Time) float64 {
	v := &j.view
	own := seen.Since(&v.last, now.Sub(v.since))
	w := estimate.Window{Length: own.Length, Wait: own.Wait, Stall: own.Stall, Held: own.Held, Used: own.Used, Iterations: own.Iterations,
		Alone: !v.shared, Age: now.Sub(j.live.began)}
	if w.Alone && len(j.On) > 0 {
		w.Utilisation = busy[j.On[0]]
	}
	fresh := v.since.IsZero() || len(seen.PIDs) == 0 // it does not use its GPU, or not yet
	v.last, v.since, v.shared = *seen, now, len(b.beside(&j.record)) > 0
	if fresh || w.Length <= 0 {
		return 0
	}
	b.book.Learn(j.Key, w)
	rate, noise, ok := 1.0, 0.0, true // alone it has its whole speed, whatever it does with it
	used := w.Utilisation
	if !w.Alone {
		rate, noise, ok = b.book.Rate(j.Key, w)
		used = w.Held.Seconds() / w.Length.Seconds()
	}
	if !ok {
		return 0
	}
	v.waits = [2]float64{w.Wait.Seconds() / w.Length.Seconds(), w.Stall.Seconds() / w.Length.Seconds()}
	v.rate, v.busy = &rate, &used
	j.Windows++
	j.MeanRate += (rate - j.MeanRate) / float64(j.Windows)
	b.holdFloor(j, rate, noise, w.Length)
	return b.correct(j, rate, noise)
}

// correct lets the belief know of a rate beside others. A job on several GPUs runs at its slowest worker, which is taken for the
// one with the most beside it.
func (b *Box) correct(j *job, rate, noise float64) float64 {
	var most []box.ID
	for _, g := range j.On {
		var others []box.ID
		for _, id := range b.residents(g) {
			if id != j.ID {
				others = append(others, id)
			}
		}
		if len(others) > len(most) {
			most = others
		}
	}
	if len(most) == 0 {
		return 0
	}
	return b.book.Observe(j.kind(), b.kindsOf(most), min(rate, 1), noise)
}

// holdFloor counts the time below the floor, and says so once the observed rate is below beyond its noise.
func (b *Box) holdFloor(j *job, rate, noise float64, length time.Duration) {
	j.view.below = rate < j.Floor-noise
	if !j.view.below {
		j.view.said = false
		return
	}
	j.Below += length
	if !j.view.said {
		j.view.said = true
		b.note(box.Event{Type: box.EventBelowFloor, Job: j.ID, GPU: &j.On[0], Text: fmt.Sprintf("%.2f < floor %.2f for %.0fs beside %s", rate, j.Floor, length.Seconds(), idNames(b.beside(&j.record)))})
	}
}

// stepped says that the clock was set. Nothing here goes by it.
func (b *Box) stepped(step time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note(box.Event{Type: box.EventClock, Text: fmt.Sprintf("the clock was set by %+.0f s: run times and limits go on as they were", step.Seconds())})
}
