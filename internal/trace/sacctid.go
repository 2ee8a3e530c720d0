package trace

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// sacctID is a JobID of sacct: job[_task][+component][.step], or job_[tasks] for tasks that have not started.
type sacctID struct {
	text      string // job, or job_task: without component and step
	component int    // of a heterogeneous job; -1 when it is none
	step      bool
	tasks     int  // in brackets
	cut       bool // the list in brackets ended in "..."
}

// maxTasks is above the largest array Slurm allows (MaxArraySize, at most 4,000,001).
const maxTasks = 10_000_000

func parseSacctID(s string) (sacctID, error) {
	id := sacctID{text: s, component: -1}
	bad := fmt.Errorf("JobID %q is not a Slurm job id", clean(s))
	if body, step, ok := strings.Cut(id.text, "."); ok && !strings.HasSuffix(s, "]") {
		id.text, id.step = body, true
		if step == "" {
			return id, bad
		}
	}
	if body, component, ok := strings.Cut(id.text, "+"); ok {
		k, err := strconv.ParseUint(component, 10, 16)
		if err != nil {
			return id, bad
		}
		id.text, id.component = body, int(k)
	}
	job, task, isArray := strings.Cut(id.text, "_")
	if _, err := parseCount(job); err != nil {
		return id, bad
	}
	list, inBrackets := strings.CutPrefix(task, "[")
	switch {
	case !isArray:
	case inBrackets && strings.HasSuffix(list, "]"):
		var err error
		if id.tasks, id.cut, err = countTasks(strings.TrimSuffix(list, "]")); err != nil {
			return id, bad
		}
	default:
		if _, err := parseCount(task); err != nil {
			return id, bad
		}
	}
	id.text = strings.Clone(id.text)
	return id, nil
}

// countTasks counts a list such as 3,7,9-12, 0-8:2 or 6-40%4, where %4 is how many may run at a time.
func countTasks(list string) (n int, cut bool, err error) {
	list, _, _ = strings.Cut(list, "%")
	for item := range strings.SplitSeq(list, ",") {
		if item == "..." {
			return n, true, nil
		}
		span, step, _ := strings.Cut(item, ":")
		from, to, isSpan := strings.Cut(span, "-")
		if !isSpan {
			to = from
		}
		if step == "" {
			step = "1"
		}
		var v [3]uint64
		for i, text := range [...]string{from, to, step} {
			if v[i], err = strconv.ParseUint(text, 10, 32); err != nil {
				return 0, false, err
			}
		}
		if v[1] < v[0] || v[2] == 0 {
			return 0, false, errNotTime
		}
		if n += int((v[1]-v[0])/v[2]) + 1; n > maxTasks {
			return 0, false, fmt.Errorf("over %d tasks", maxTasks)
		}
	}
	return n, false, nil
}

// gres is the GPUs in a cell of TRES or GRES.
type gres struct {
	untyped int      // gres/gpu=4
	typed   int      // sum of gres/gpu:a100=2, ...
	types   []string // in order, each once
	mig     string   // profile of the first MIG slice, such as 1g.5gb
	shards  bool     // gres/shard or gres/mps
}

// total is the number of GPUs. Slurm states the same GPUs with and without their type, so they are not added up.
func (g gres) total() int { return max(g.untyped, g.typed) }

func (g gres) any() bool { return g.total() > 0 || g.mig != "" || g.shards }

// migProfile finds a profile of a MIG slice in a GPU type: 1g.5gb, a100_3g.20gb, 1g.10gb+me.
var migProfile = regexp.MustCompile(`[1-9]g\.[0-9]+gb[a-z0-9+.]*`)

// parseGRES reads a cell of TRES (cpu=8,gres/gpu:a100=4,gres/gpu=4) or of the older GRES (gpu:a100:2(S:0-1),gpu:4).
// What is neither GPU nor a share of one is skipped, as is a count that does not read.
func parseGRES(cell string) gres {
	var g gres
	for item := range splitGRES(cell) {
		key, count, isTRES := strings.Cut(item, "=")
		if isTRES {
			var ok bool
			if key, ok = strings.CutPrefix(key, "gres/"); !ok {
				continue
			}
		} else {
			key, count = splitOldGRES(item)
		}
		name, kind, isTyped := strings.Cut(key, ":")
		n, err := strconv.ParseUint(count, 10, 31)
		if err != nil || n == 0 {
			continue
		}
		switch {
		case name == "shard" || name == "mps":
			g.shards = true
		case name != "gpu":
		case isTyped && migProfile.MatchString(strings.ToLower(kind)):
			if g.mig == "" {
				g.mig = migProfile.FindString(strings.ToLower(kind))
			}
		case isTyped:
			g.addType(kind, int(n))
		default:
			g.untyped = min(g.untyped+int(n), maxTasks)
		}
	}
	return g
}

func (g *gres) addType(kind string, n int) {
	g.typed = min(g.typed+n, maxTasks)
	for _, known := range g.types {
		if known == kind {
			return
		}
	}
	g.types = append(g.types, kind)
}

// splitGRES yields the items of a cell: commas inside parentheses, as of (S:0,2), belong to an item.
func splitGRES(cell string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		depth, from := 0, 0
		for i := range len(cell) {
			switch cell[i] {
			case '(':
				depth++
			case ')':
				depth--
			case ',':
				if depth <= 0 {
					if !yield(cell[from:i]) {
						return
					}
					from, depth = i+1, 0
				}
			}
		}
		yield(cell[from:])
	}
}

// splitOldGRES splits gpu:a100:2(S:0-1), gres:gpu:2, gpu:2 or gpu into name[:type] and count; no count means 1.
func splitOldGRES(item string) (key, count string) {
	item, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(item), "gres:"), "(")
	at := strings.LastIndexByte(item, ':')
	if at < 0 {
		return item, "1"
	}
	if _, err := parseCount(item[at+1:]); err != nil {
		return item, "1"
	}
	return item[:at], item[at+1:]
}
