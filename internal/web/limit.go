package web

import "sync"

// How much may be open at once. A user other than an administrator has half of each at most.
const (
	mostStreams = 256  // of states and events
	mostLogs    = 2048 // a reader of one that has output holds a quarter of a MiB
	mostPolls   = 4096
	mostConns   = 8192 // of the socket
	mostTCP     = 512
	mostInputs  = 256
)

// limits are what is open now.
type limits struct {
	streams, logs, polls *quota
}

func newLimits() limits {
	return limits{newQuota(mostStreams), newQuota(mostLogs), newQuota(mostPolls)}
}

// quota counts what users have open.
type quota struct {
	most int

	mu  sync.Mutex
	all int
	of  map[int]int // by user
}

func newQuota(most int) *quota { return &quota{most: most, of: map[int]int{}} }

// enter says whether a user may open one more, and counts it.
func (q *quota) enter(uid int, admin bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all >= q.most || !admin && q.of[uid] >= q.most/2 {
		return false
	}
	q.all++
	q.of[uid]++
	return true
}

// leave takes one back.
func (q *quota) leave(uid int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all--
	if q.of[uid]--; q.of[uid] == 0 {
		delete(q.of, uid)
	}
}
