package dispatch

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

var update = flag.Bool("update", false, "write what the scenarios give into their files")

// TestScenarios tells the stories of testdata. A story sets up a machine line by line; a command and "----" is followed by
// what it must give, up to an empty line.
//
//	gpus 4 22.5                        so many GPUs of so many GiB; gpu 2 foreign=3 runs closed=Drained changes one
//	node 4 22.5                        so many GPUs on a node of their own
//	pair a b 0.9 0.8                   rates of two configurations beside each other
//	user ana weight=2 used=3600 gpus=4 jobs=2
//	job 7 user=ana config=a memory=8/12 levels=1:0.7,4:0.3 class=guaranteed floor=0.9 gpus=2 on=0,1 priority=50
//	      age=25m max=1h ran=10m waits=Dependency pause=9s rate=0.95 stopping migratable nomove
//	      together=2 nodes=0,3
//	at 10m, end 7, ban a b 1h, strict, spread, epsilon 0.05
//	mean a b 0.5                       what a is believed to be slowed by b, for repair
//	plan, start (plan, and start those jobs), explain 7, repair 0, consolidate 5, evacuate 0
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := newStory(t).tell(string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s:\n%s", file, firstDifference(string(text), got))
			}
		})
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d: got  %s\n         want %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

type story struct {
	t     *testing.T
	s     State
	means map[[2]string]float64
}

func newStory(t *testing.T) *story {
	t.Helper()
	return &story{t: t, means: map[[2]string]float64{}, s: State{Now: epoch, Users: map[string]User{}, Table: interference.NewTable(),
		Options: Options{Epsilon: 0.05}}}
}

// tell goes through a file and returns it with what the commands give.
func (y *story) tell(text string) string {
	lines := strings.Split(text, "\n")
	var out strings.Builder
	for i := 0; i < len(lines); i++ {
		fmt.Fprintln(&out, lines[i])
		fields := strings.Fields(lines[i])
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		given := y.do(fields)
		if i+1 < len(lines) && lines[i+1] == "----" {
			fmt.Fprintf(&out, "----\n%s", given)
			for i++; i+1 < len(lines) && lines[i+1] != ""; i++ {
			}
		}
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

func (y *story) do(f []string) string {
	switch f[0] {
	case "new":
		*y = *newStory(y.t)
	case "gpus":
		for range y.int(f[1]) {
			y.s.GPUs = append(y.s.GPUs, GPU{Usable: y.gib(f[2])})
		}
	case "node":
		node := 0
		for _, g := range y.s.GPUs {
			node = max(node, g.Node+1)
		}
		for range y.int(f[1]) {
			y.s.GPUs = append(y.s.GPUs, GPU{Node: node, Usable: y.gib(f[2])})
		}
	case "gpu":
		y.gpu(y.int(f[1]), f[2:])
	case "pair":
		y.s.Table.Add(interference.Config{Model: f[1]}, interference.Config{Model: f[2]}, y.float(f[3]), y.float(f[4]))
	case "mean":
		y.means[[2]string{f[1], f[2]}] = y.float(f[3])
	case "user":
		y.user(f[1], f[2:])
	case "job":
		y.job(y.id(f[1]), f[2:])
	case "end":
		y.s.Jobs = slices.DeleteFunc(y.s.Jobs, func(j Job) bool { return j.ID == y.id(f[1]) })
	case "at":
		y.s.Now = epoch.Add(y.duration(f[1]))
	case "ban":
		y.s.Bans = append(y.s.Bans, Ban{interference.Config{Model: f[1]}, interference.Config{Model: f[2]}, y.s.Now.Add(y.duration(f[3]))})
	case "strict":
		y.s.Options.Strict = true
	case "spread":
		y.s.Options.Spread = true
	case "epsilon":
		y.s.Options.Epsilon = y.float(f[1])
	default:
		return y.ask(f)
	}
	return ""
}

func (y *story) ask(f []string) string {
	switch f[0] {
	case "plan":
		return decided(Plan(&y.s))
	case "start":
		d := Plan(&y.s)
		apply(&y.s, d, y.s.Now)
		return decided(d)
	case "explain":
		e, ok := Explain(&y.s, y.id(f[1]))
		if !ok {
			return "does not wait\n"
		}
		return explained(&e)
	case "repair":
		return y.repair(y.int(f[1]))
	case "consolidate":
		return told(Consolidate(&y.s, y.int(f[1])))
	case "evacuate":
		return told(Evacuate(&y.s, y.int(f[1])))
	}
	y.t.Fatalf("what is %q?", f)
	return ""
}

func (y *story) gpu(g int, f []string) {
	for _, x := range f {
		switch k, v, _ := strings.Cut(x, "="); k {
		case "foreign":
			y.s.GPUs[g].Foreign = y.gib(v)
		case "runs":
			y.s.GPUs[g].ForeignRuns = true
		case "closed":
			y.s.GPUs[g].Closed = plan.Code(v)
		case "usable":
			y.s.GPUs[g].Usable = y.gib(v)
		default:
			y.t.Fatalf("gpu %s?", x)
		}
	}
}

func (y *story) user(name string, f []string) {
	u := y.s.Users[name]
	for _, x := range f {
		switch k, v, _ := strings.Cut(x, "="); k {
		case "weight":
			u.Weight = y.float(v)
		case "used":
			u.Used = y.float(v)
		case "gpus":
			u.MaxGPUs = y.int(v)
		case "jobs":
			u.MaxRunning = y.int(v)
		default:
			y.t.Fatalf("user %s?", x)
		}
	}
	y.s.Users[name] = u
}

func (y *story) job(id box.ID, f []string) {
	at := slices.IndexFunc(y.s.Jobs, func(j Job) bool { return j.ID == id })
	if at < 0 {
		at = len(y.s.Jobs)
		y.s.Jobs = append(y.s.Jobs, Job{ID: id, User: "ana", GPUs: 1, Floor: 0.9, Submitted: y.s.Now, Memory: profile.Flat(4 * unit.GiB)})
	}
	j := &y.s.Jobs[at]
	for _, x := range f {
		k, v, _ := strings.Cut(x, "=")
		if !y.bool(j, k) && !y.words(j, k, v) && !y.times(j, k, v) {
			y.t.Fatalf("job %s?", x)
		}
	}
}

func (y *story) bool(j *Job, k string) bool {
	switch k {
	case "stopping":
		j.Stopping = true
	case "migratable":
		j.Migratable = true
	case "nomove":
		j.NoMove = true
	default:
		return false
	}
	return true
}

func (y *story) words(j *Job, k, v string) bool {
	switch k {
	case "user":
		j.User = v
	case "config":
		j.Config = interference.Config{Model: v}
	case "class":
		j.Class, _ = cluster.ParseClass(v)
	case "floor":
		j.Floor = y.float(v)
	case "gpus":
		j.GPUs = y.int(v)
	case "together":
		j.Together = y.int(v)
	case "nodes":
		j.Nodes = &Nodes{}
		for n := range strings.SplitSeq(v, ",") {
			j.Nodes.May = append(j.Nodes.May, make([]bool, max(0, y.int(n)+1-len(j.Nodes.May)))...)
			j.Nodes.May[y.int(n)] = true
		}
	case "priority":
		j.Priority = y.int(v)
	case "rate":
		j.Rate = y.float(v)
	case "waits":
		j.Waits = plan.Code(v)
	case "memory":
		reserved, peak, cooperates := strings.Cut(v, "/")
		j.Cooperates, j.Memory = cooperates, profile.Flat(y.gib(reserved))
		if cooperates {
			j.Memory = profile.New(y.gib(reserved), y.gib(peak), profile.Shape{1})
		}
	case "levels":
		j.Memory.Ephemeral = nil
		for l := range strings.SplitSeq(v, ",") {
			bytes, fraction, _ := strings.Cut(l, ":")
			j.Memory.Ephemeral = append(j.Memory.Ephemeral, profile.Level{Bytes: y.gib(bytes), Fraction: y.float(fraction)})
		}
	case "on":
		j.On = nil
		for g := range strings.SplitSeq(v, ",") {
			j.On = append(j.On, y.int(g))
		}
		j.GPUs, j.Started = len(j.On), y.s.Now
	default:
		return false
	}
	return true
}

func (y *story) times(j *Job, k, v string) bool {
	d, err := time.ParseDuration(v)
	if err != nil {
		return false
	}
	switch k {
	case "age":
		j.Submitted = y.s.Now.Add(-d)
	case "max":
		j.MaxTime = d
	case "ran":
		j.Ran, j.Started = d, y.s.Now.Add(-d)
	case "pause":
		j.Pause = d
	default:
		return false
	}
	return true
}

func (y *story) repair(gpu int) string {
	r, ok := Repair(&y.s, func(i, l box.ID) float64 {
		return y.means[[2]string{y.s.find(i).Config.Model, y.s.find(l).Config.Model}]
	}, gpu)
	if !ok {
		return "all hold their floors\n"
	}
	text := fmt.Sprintf("below %s, apart %s %s\n", ids(r.Below), y.s.find(r.Apart[0]).Config, y.s.find(r.Apart[1]).Config)
	if r.Move.Job == 0 {
		return text + "nobody can leave\n"
	}
	return text + told([]Move{r.Move})
}

func told(moves []Move) string {
	text := ""
	for _, m := range moves {
		to := "queue"
		if m.To != nil {
			to = gpus(m.To)
		}
		text += fmt.Sprintf("%d moves %s -> %s\n", m.Job, gpus(m.From), to)
	}
	if text == "" {
		return "nothing\n"
	}
	return text
}

func decided(d Decision) string {
	text := ""
	for _, s := range d.Starts {
		text += fmt.Sprintf("%d starts on %s\n", s.Job, gpus(s.GPUs))
	}
	for _, w := range d.Waits {
		text += waited(&w)
		if at, ok := d.Promised[w.Job]; ok {
			text += fmt.Sprintf("  starts by %s\n", at.Format("15:04:05"))
		}
	}
	if text == "" {
		return "nothing\n"
	}
	return text
}

func waited(w *Wait) string {
	text := fmt.Sprintf("%d waits: %s", w.Job, reason(w.Reason))
	if w.GPU >= 0 {
		text += fmt.Sprintf(" gpu%d", w.GPU)
	}
	if w.Resident != 0 {
		text += fmt.Sprintf(" (of %d)", w.Resident)
	}
	if w.After != 0 {
		text += fmt.Sprintf(" after %d", w.After)
	}
	return text + "\n"
}

// reason is a reason with bytes as GiB.
func reason(r plan.Reason) string {
	if r.Got > 1<<20 {
		return fmt.Sprintf("%s %.1f > %.1f GiB", r.Code, r.Got/float64(unit.GiB), r.Limit/float64(unit.GiB))
	}
	return r.String()
}

func explained(e *Explanation) string {
	text := waited(&e.Wait)
	for _, r := range e.Refusals {
		text += fmt.Sprintf("gpu%d  beside %s  %s", r.GPU, ids(r.Beside), reason(r.Reason))
		if r.Resident != 0 {
			text += fmt.Sprintf(" (of %d)", r.Resident)
		}
		if r.After != 0 {
			text += fmt.Sprintf(" after %d", r.After)
		}
		if r.Reason.Code == plan.MemoryReserved {
			text += fmt.Sprintf(" of which %.1f held", r.Held.MiB()/1024)
		}
		text += "\n"
	}
	if len(e.Ahead) > 0 {
		text += fmt.Sprintf("ahead %s\n", ids(e.Ahead))
	}
	if len(e.Ends) > 0 {
		text += fmt.Sprintf("fits when %s ends", ids(e.Ends))
		if !e.EndsBy.IsZero() {
			text += " by " + e.EndsBy.Format("15:04:05")
		}
		text += "\n"
	}
	if e.Peak > 0 {
		text += fmt.Sprintf("or now with a peak <= %.1f GiB on gpu%d\n", e.Peak.MiB()/1024, e.PeakGPU)
	}
	if e.Floor > 0 {
		text += fmt.Sprintf("or now with a floor <= %.2f on gpu%d\n", e.Floor, e.FloorGPU)
	}
	return text
}

func ids(list []box.ID) string {
	if len(list) == 0 {
		return "-"
	}
	text := make([]string, len(list))
	for i, id := range list {
		text[i] = id.String()
	}
	return strings.Join(text, ",")
}

func gpus(list []int) string {
	text := make([]string, len(list))
	for i, g := range list {
		text[i] = fmt.Sprint("gpu", g)
	}
	return strings.Join(text, ",")
}

func (y *story) int(s string) int { return must(y.t, s, strconv.Atoi) }

func (y *story) id(s string) box.ID { return box.ID(y.int(s)) }

func (y *story) float(s string) float64 {
	return must(y.t, s, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
}

func (y *story) gib(s string) unit.Bytes { return unit.FromMiB(y.float(s) * 1024) }

func (y *story) duration(s string) time.Duration { return must(y.t, s, time.ParseDuration) }

func must[T any](t *testing.T, s string, parse func(string) (T, error)) T {
	t.Helper()
	v, err := parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
