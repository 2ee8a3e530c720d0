package arbiter

import (
	"cmp"
	"slices"
	"time"

	"weft.dev/weft/internal/unit"
)

type state int8

const (
	resting  state = iota // wants nothing
	waiting               // in the queue
	holding               // has its tokens
	draining              // has its tokens and was told to drop them
)

// session is a process.
type session struct {
	id    SessionID
	job   *job
	gpus  []int  // rising
	epoch uint64 // of the token that it holds, 0 for none
	wants bool   // asked since it last held
	idle  bool   // said so since it was granted
}

// job is what holds tokens.
type job struct {
	id       JobID
	class    Class
	weight   int
	joined   uint64 // its number
	sessions []*session
	gpus     []int // of its sessions, rising
	held     []int // that it holds now
	state    state

	tag      time.Duration // virtual time: what it held over its weight
	first    time.Duration // tag when it was granted
	start    unit.Time     // of holding
	deadline unit.Time     // of a bounded slice
	floor    bool          // the slice is part of the minimum: no class ends it early
	ahead    bool          // it was granted before it asked, in a gap
	returned unit.Time     // from that gap, as far as its sessions said; unit.Never while none launched
	dropped  unit.Time     // when it was told to
	yielding bool          // was told to yield
	spared   time.Duration // but not in gaps until they have lasted so long
	yielded  unit.Time     // when
	late     time.Duration // mean time from drop or deadline to release
	later    time.Duration // the last one of these times
	slow     bool          // it would have got the gap that was looked at last if it drained at once
	window   time.Duration
	given    time.Duration // window that its sessions were last told
	wide     bool          // it was granted without a window: how long it drains says nothing of the next time
	hurt     bool          // made a higher class wait

	rest  rest
	usage Usage
}

// Figures of a job.
const (
	firstWindow = 500 * time.Microsecond // the best of 0.5, 1 and 2 ms tried for a high job of 4 ms iterations
	leastWindow = firstWindow / 2        // two of the usual kernels: one runs while the next is launched
	mostWindow  = 2 * time.Millisecond   // among peers, who lose nothing by it but the time to their turn
	smoothing   = 8                      // of means: 1/8 of each new value, as round-trip times are smoothed
)

func newJob(s Session, number uint64, now unit.Time) *job {
	return &job{
		id: s.Job, class: s.Class, weight: s.Weight, joined: number,
		deadline: unit.Never, late: firstWindow, window: firstWindow, rest: rest{solvent: now},
	}
}

// before orders waiting jobs by right: class, virtual time, who held last, joining. Those that are lead above a peer that cannot
// run have one virtual time.
func before(a, b *job) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.tag, b.tag), cmp.Compare(a.start, b.start), cmp.Compare(a.joined, b.joined))
}

func (j *job) holds() bool { return j.state == holding || j.state == draining }

// open says whether a session still holds a token.
func (j *job) open() bool {
	return slices.ContainsFunc(j.sessions, func(s *session) bool { return s.epoch > 0 })
}

func (j *job) wanting() bool {
	return slices.ContainsFunc(j.sessions, func(s *session) bool { return s.wants })
}

// idle says whether no session that holds a token computes, as far as known.
func (j *job) idle() bool {
	return !slices.ContainsFunc(j.sessions, func(s *session) bool { return s.epoch > 0 && !s.idle })
}

// covers says whether the job holds all GPUs of a session.
func (j *job) covers(s *session) bool {
	return !slices.ContainsFunc(s.gpus, func(g int) bool { return !slices.Contains(j.held, g) })
}

// regroup sets the GPUs of a job from its sessions, and the lists of who uses what. Tokens that no session uses any more
// are free.
func (a *Arbiter) regroup(j *job) {
	var gpus []int
	for _, s := range j.sessions {
		gpus = append(gpus, s.gpus...)
	}
	slices.Sort(gpus)
	gpus = slices.Compact(gpus)
	for _, g := range j.gpus {
		t := &a.gpus[g]
		t.on = slices.DeleteFunc(t.on, func(k *job) bool { return k == j })
		if _, used := slices.BinarySearch(gpus, g); !used && t.holder == j {
			t.holder = nil
			j.held = slices.DeleteFunc(j.held, func(h int) bool { return h == g })
		}
	}
	j.gpus = gpus
	for _, g := range gpus {
		on := &a.gpus[g].on
		i, _ := slices.BinarySearchFunc(*on, j, func(x, y *job) int { return cmp.Compare(x.joined, y.joined) })
		*on = slices.Insert(*on, i, j)
	}
}

// measure files how late a release was. One that was much later than usual is chance; the second in a row counts, at once and in
// full.
func (j *job) measure(late time.Duration) {
	least := min(late, j.later)
	j.later = late
	if least > j.late+j.given {
		j.late = least
	} else {
		j.late += (min(late, max(2*j.late, firstWindow)) - j.late) / smoothing
	}
}
