package shepherd

// role is what part a program plays in a tree of processes, when the tree is to stop.
type role byte

const (
	worker  role = iota
	shell        // goes on to its next command when one ends: it is held until it can be told itself
	wrapper      // ends with the one program that it runs
	filter       // ends with its input: told last, so that what others print while they stop is not cut off
)

var roles = map[string]role{
	"sh": shell, "bash": shell, "dash": shell, "ash": shell, "zsh": shell, "ksh": shell, "ksh93": shell, "mksh": shell,
	"fish": shell, "csh": shell, "tcsh": shell, "busybox": shell, "xargs": shell,
	"timeout": wrapper, "nice": wrapper, "env": wrapper, "time": wrapper, "stdbuf": wrapper, "nohup": wrapper, "setsid": wrapper,
	"script": wrapper, "flock": wrapper,
	"tee": filter, "cat": filter, "ts": filter, "grep": filter, "sed": filter, "awk": filter, "gawk": filter, "mawk": filter,
	"head": filter, "tail": filter, "pv": filter, "logger": filter, "tr": filter, "cut": filter, "sort": filter, "uniq": filter,
	"wc": filter, "gzip": filter, "pigz": filter, "bzip2": filter, "xz": filter, "zstd": filter,
}

// request is whom to tell to stop now.
type request struct {
	ask     []proc // SIGTERM: the topmost programs that are no wrappers, and wrappers that have nothing left to wait for
	hold    []proc // SIGSTOP: shells that would go on
	filters []proc // SIGTERM, once nothing else is left to ask
}

// stopNow decides whom to tell to stop in the tree below and with a root. A process that was asked already is left alone with
// all that is below it: what it still starts is its way to end.
//
// SIGTERM goes to the program behind its wrappers, and not to what it started itself: data loaders that die before their
// program are taken for a crash.
func stopNow(tree map[int][]proc, root proc, roleOf func(proc) role, asked func(proc) bool) request {
	var r request
	r.visit(tree, root, roleOf, asked)
	return r
}

func (r *request) visit(tree map[int][]proc, p proc, roleOf func(proc) role, asked func(proc) bool) {
	if p.dead() || asked(p) {
		return
	}
	kind := roleOf(p)
	if kind == filter {
		r.filters = append(r.filters, p)
		return
	}
	waits := false
	if kind != worker {
		for _, child := range tree[p.pid] {
			waits = waits || !child.dead()
		}
	}
	if !waits {
		r.ask = append(r.ask, p)
		return
	}
	if kind == shell {
		r.hold = append(r.hold, p)
	}
	for _, child := range tree[p.pid] {
		r.visit(tree, child, roleOf, asked)
	}
}

// roleOf is the role of a process by its executable.
func roleOf(p proc) role { return roles[program(p.pid)] }
