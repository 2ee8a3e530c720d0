package placement

// Tally counts GPUs that take a job by their nodes, and says whether they are enough for it: each run of workers that must be
// together needs as many on one node.
type Tally struct {
	run   int // workers that are together
	count []int
	all   int
	runs  int // whole ones
}

// NewTally counts nothing yet, of so many nodes, for a job of which so many workers in a row are together.
func NewTally(nodes, together int) *Tally {
	return &Tally{run: max(1, together), count: make([]int, nodes)}
}

// Reset counts nothing again, for another job.
func (t *Tally) Reset(together int) {
	t.run, t.all, t.runs = max(1, together), 0, 0
	clear(t.count)
}

// Add counts a GPU of a node.
func (t *Tally) Add(node int) {
	t.all++
	if t.count[node]++; t.count[node]%t.run == 0 {
		t.runs++
	}
}

// Drop takes back a GPU of a node that was counted.
func (t *Tally) Drop(node int) {
	t.all--
	if t.count[node]%t.run == 0 {
		t.runs--
	}
	t.count[node]--
}

// Count is the GPUs counted.
func (t *Tally) Count() int { return t.all }

// Most is the most GPUs of one node, and the first node with so many; none is -1.
func (t *Tally) Most() (gpus, node int) {
	node = -1
	for n, c := range t.count {
		if c > gpus {
			gpus, node = c, n
		}
	}
	return gpus, node
}

// Workers is how many workers find a GPU in whole runs.
func (t *Tally) Workers() int { return t.runs * t.run }

// Enough says whether so many workers find a GPU each. The last run may be the shorter.
func (t *Tally) Enough(workers int) bool {
	full, rest := workers/t.run, workers%t.run
	if t.runs < full || t.runs > full || rest == 0 {
		return t.runs >= full
	}
	for _, c := range t.count {
		if c%t.run >= rest {
			return true
		}
	}
	return false
}
