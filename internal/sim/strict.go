package sim

// strictLine starts jobs in order and blocks at the head: while the first job does not fit, none behind it starts,
// though it may fit. That is the rule of the published FIFO and SJF replays.
type strictLine struct {
	*engine
	waiting waiting
	running int
	refused int32 // head that found no room, +1; 0 for none
}

func (l *strictLine) add(job int32) { l.waiting.push(l.place(job)) }

func (l *strictLine) gone(int32) {
	l.running--
	l.refused = 0 // there is room again
}

// moved does not matter to a running job here: it keeps its GPUs.
func (l *strictLine) moved(int32) {}

func (l *strictLine) freed() { l.refused = 0 }

func (l *strictLine) serve() {
	for len(l.waiting) > 0 {
		job := l.waiting[0].job
		if l.refused == job+1 {
			return
		}
		slots, ok := l.placer.Place(int(job))
		if !ok && l.running > 0 {
			l.refused = job + 1
			return
		}
		l.waiting.pop()
		if !ok {
			l.refuseWaiting(job)
			continue
		}
		l.running++
		l.state[job].slots = slots
		l.start(job)
	}
}
