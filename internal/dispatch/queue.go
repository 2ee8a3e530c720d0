package dispatch

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/plan"
)

// line is the waiting jobs of one user at one priority, the oldest first.
type line struct {
	share    *share
	priority int
	jobs     []int
	level    int // priority with the age of the oldest of its priority
}

// share is what a user has, with what it was picked for.
type share struct {
	User
	gpus, jobs int
}

// load is the user's use of GPUs by its weight: those it has had lately, has, and is to get.
func (s *share) load() float64 {
	weight := s.Weight
	if !(weight > 0) {
		weight = 1
	}
	return (max(0, s.Used)/memory + float64(s.gpus)) / weight
}

// overQuota is the quota that a job of so many workers would exceed.
func (s *share) overQuota(workers int) plan.Reason {
	if s.MaxRunning > 0 && s.jobs+1 > s.MaxRunning {
		return plan.Reason{Code: plan.Quota, Got: float64(s.jobs + 1), Limit: float64(s.MaxRunning)}
	}
	if s.MaxGPUs > 0 && s.gpus+workers > s.MaxGPUs {
		return plan.Reason{Code: plan.Quota, Got: float64(s.gpus + workers), Limit: float64(s.MaxGPUs)}
	}
	return plan.Reason{}
}

// queue is the order of some waiting jobs.
type queue struct {
	b      *board
	lines  []line
	shares map[string]*share
}

func newQueue(b *board, waiting []int) *queue {
	q := &queue{b: b, shares: map[string]*share{}}
	for i, j := range b.jobs {
		u := q.share(j.User)
		if b.runs(i) {
			u.jobs++
			u.gpus += len(j.On)
		}
	}
	type key struct {
		priority int
		user     string
	}
	at := map[key]int{}
	for _, i := range waiting {
		k := key{b.jobs[i].Priority, b.jobs[i].User}
		if _, ok := at[k]; !ok {
			at[k] = len(q.lines)
			q.lines = append(q.lines, line{share: q.share(k.user), priority: k.priority})
		}
		l := &q.lines[at[k]]
		l.jobs = append(l.jobs, i)
	}
	for i := range q.lines {
		slices.SortFunc(q.lines[i].jobs, q.earlier)
	}
	slices.SortStableFunc(q.lines, func(x, y line) int { return cmp.Compare(x.priority, y.priority) })
	return q
}

func (q *queue) share(user string) *share {
	if q.shares[user] == nil {
		q.shares[user] = &share{User: q.b.s.Users[user]}
	}
	return q.shares[user]
}

// earlier orders jobs by submission, then by ID.
func (q *queue) earlier(a, b int) int {
	x, y := q.b.jobs[a], q.b.jobs[b]
	return cmp.Or(x.Submitted.Compare(y.Submitted), cmp.Compare(x.ID, y.ID))
}

// next takes the job that comes next out of its line, with the level that it was taken at, or returns -1. The highest level of any priority goes first, where
// age lifts all jobs of a priority with its oldest: a user's many old jobs do not go before another's first. Of the users
// that wait at that level the one with the least load goes first, then the one whose job was submitted first. O(lines).
func (q *queue) next() (job, at int) {
	var best *line
	for from := 0; from < len(q.lines); {
		end := from
		level, some := 0, false
		for ; end < len(q.lines) && q.lines[end].priority == q.lines[from].priority; end++ {
			if l := &q.lines[end]; len(l.jobs) > 0 {
				aged := l.priority + age(q.b.jobs[l.jobs[0]], q.b.s.Now)
				if !some || aged > level {
					level, some = aged, true
				}
			}
		}
		for ; from < end; from++ {
			l := &q.lines[from]
			l.level = level
			if len(l.jobs) > 0 && (best == nil || q.before(l, best) < 0) {
				best = l
			}
		}
	}
	if best == nil {
		return -1, 0
	}
	job = best.jobs[0]
	best.jobs = best.jobs[1:]
	return job, best.level
}

// before orders two lines.
func (q *queue) before(a, b *line) int {
	if c := cmp.Compare(b.level, a.level); c != 0 {
		return c
	}
	if a.share != b.share {
		if c := cmp.Compare(a.share.load(), b.share.load()); c != 0 {
			return c
		}
	}
	return q.earlier(a.jobs[0], b.jobs[0])
}

// pick counts a job that comes next for its user, or says which quota it would exceed.
func (q *queue) pick(job int) plan.Reason {
	u, workers := q.share(q.b.jobs[job].User), q.b.workers(job)
	if r := u.overQuota(workers); r.Refused() {
		return r
	}
	u.jobs++
	u.gpus += workers
	return plan.Reason{}
}
