package boxtable

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/unit"
)

// Order is how weft top sorts the jobs of a GPU, and those that wait.
type Order int

// The orders.
const (
	ByID Order = iota
	ByRate
	ByUser
	ByTime
	orders
)

// String is the name.
func (o Order) String() string { return [...]string{"id", "rate", "user", "time"}[o] }

// Next is the order after this one.
func (o Order) Next() Order { return (o + 1) % orders }

// Top is the screen of weft top: the machine at one instant, and what its reader chose to see of it.
type Top struct {
	View
	Status box.Status
	Jobs   []box.Job
	GPUs   []box.GPU

	Height int    // lines of the screen; 0 for as many as it takes
	Order  Order  // of jobs
	Mine   string // only jobs of this user; "" for all
	Filter string // only jobs whose name, user or ID holds this
	Typing bool   // the filter is being typed
	Paused bool
	Away   bool   // the daemon does not answer
	Chosen box.ID // job under the cursor; 0 for none
	Detail string // what is said of it, under the table; "" for nothing
}

// Listed is the IDs of the jobs on the screen from top to bottom, each once.
func (t *Top) Listed() []box.ID {
	var list []box.ID
	add := func(jobs []*box.Job) {
		for _, j := range jobs {
			if !slices.Contains(list, j.ID) {
				list = append(list, j.ID)
			}
		}
	}
	for i := range t.GPUs {
		add(t.residents(&t.GPUs[i]))
	}
	add(t.waiting())
	return list
}

// Move moves the cursor by some jobs, from the first one where it is on none.
func (t *Top) Move(by int) {
	list := t.Listed()
	if len(list) == 0 {
		t.Chosen = 0
		return
	}
	at := slices.Index(list, t.Chosen)
	if at < 0 && by > 0 {
		by--
	}
	t.Chosen = list[min(max(max(at, 0)+by, 0), len(list)-1)]
}

// Frame is the screen, a text of at most Height lines.
func (t *Top) Frame() string {
	lines, at := t.body()
	head, foot := t.header(), t.footer()
	if t.Detail != "" {
		foot = append(append([]string{""}, strings.Split(strings.TrimRight(t.Detail, "\n"), "\n")...), foot...)
	}
	if room := t.Height - 1 - len(foot); t.Height > 0 && len(lines) > room {
		room = max(room, 1)
		first := min(max(at-room/2, 0), len(lines)-room)
		lines = lines[first : first+room]
	}
	all := append(append([]string{head}, lines...), foot...)
	if t.Height > 0 && len(all) > t.Height {
		all = all[:t.Height]
	}
	return strings.Join(all, "\n") + "\n"
}

// header says how the machine is, and what time it is.
func (t *Top) header() string {
	s := &t.Status
	broken := fmt.Sprintf("below floor %d", s.BelowFloor)
	mark := report.Plain
	if s.BelowFloor > 0 {
		mark = report.Bad
	}
	left := fmt.Sprintf("%s  %s  %s  ", report.Clean(s.Host), report.Several(s.GPUs, "GPU"), report.Several(s.Workers, "worker"))
	right := fmt.Sprintf("  waiting %d", s.Waiting)
	for _, word := range []struct {
		is   bool
		text string
	}{{t.Paused, "PAUSED"}, {t.Away, "AWAY"}, {len(s.Degraded) > 0, "DEGRADED"}} {
		if word.is {
			right += "  " + word.text
		}
	}
	clock := t.clock(t.Now, seconds)
	used := report.Columns(left + broken + right)
	if mark == report.Bad {
		used++
	}
	const margin = 5
	blanks := max(t.Screen.Columns()-margin-used-len(clock), 2)
	return left + t.Screen.Marked(broken, mark) + right + strings.Repeat(" ", blanks) + clock
}

func (t *Top) footer() []string {
	if t.Typing {
		return []string{"", "/" + report.Clean(t.Filter) + "_   Enter keeps it, Esc drops it"}
	}
	keys := fmt.Sprintf("q quit  arrows choose  Enter explain  s sort: %s  u mine  / filter  p pause", t.Order)
	var limits []string
	if t.Mine != "" {
		limits = append(limits, "only of "+report.Clean(t.Mine))
	}
	if t.Filter != "" {
		limits = append(limits, "only with "+report.Clean(t.Filter))
	}
	if len(limits) > 0 {
		keys += "\n" + strings.Join(limits, ", ")
	}
	return append([]string{""}, strings.Split(keys, "\n")...)
}

// body is the lines between header and footer, and which of them the cursor is on.
func (t *Top) body() (lines []string, at int) {
	width := 1
	for i := range t.Jobs {
		width = max(width, len(t.Jobs[i].ID.String()))
	}
	add := func(j *box.Job, line string) {
		cursor := "  "
		if j.ID == t.Chosen {
			cursor = "> "
			at = len(lines)
		}
		lines = append(lines, cursor+line)
	}
	for i := range t.GPUs {
		g := &t.GPUs[i]
		lines = append(lines, t.gpu(g))
		for _, j := range t.residents(g) {
			add(j, t.resident(j, width))
		}
	}
	if list := t.waiting(); len(list) > 0 {
		lines = append(lines, fmt.Sprintf("waiting %d", t.Status.Waiting))
		for _, j := range list {
			add(j, t.waiter(j, width))
		}
	}
	return lines, at
}

// bars is how wide bars are.
func (t *Top) bars() (memory, rate int) {
	if t.wide() {
		return 40, 40
	}
	return 26, 20
}

func (t *Top) wide() bool { return t.Screen.Columns() >= report.WideWidth }

// gpu is the line of a GPU.
func (t *Top) gpu(g *box.GPU) string {
	width, _ := t.bars()
	token := report.None
	if g.Token != 0 {
		token = g.Token.String()
	}
	line := fmt.Sprintf("gpu%d busy %s mem [%s] %s/%s GiB  token %s", g.Index, share(g.Busy), memoryBar(g, width), gib(g.InUse), gib(g.Usable), token)
	if c := healthOf(g); c.Mark != report.Plain {
		line += "  " + t.Screen.Marked(report.Clean(g.Health), c.Mark)
	}
	return line
}

// memoryBar draws what is in use of a GPU's memory; r is how much is reserved, f where what is in use ends.
func memoryBar(g *box.GPU, width int) string {
	bar := []byte(strings.Repeat(".", width))
	reserved, used := cellOf(g.Reserved, g.Usable, width), cellOf(g.InUse, g.Usable, width)
	for i := range used {
		bar[i] = '#'
	}
	if g.InUse > 0 {
		bar[used] = 'f'
	}
	if g.Reserved > 0 {
		bar[reserved] = 'r'
	}
	return string(bar)
}

// cellOf is the cell of a bar in which an amount ends.
func cellOf(b, of unit.Bytes, width int) int {
	if of <= 0 {
		return 0
	}
	return cell(float64(b)/float64(of), width)
}

func cell(share float64, width int) int {
	return min(max(int(share*float64(width)), 0), width-1)
}

// resident is the line of a job on a GPU.
func (t *Top) resident(j *box.Job, width int) string {
	_, bar := t.bars()
	rate := fmt.Sprintf("%5s", share(j.Rate))
	sign := " "
	if below(j.Rate, j.Floor) {
		text := strings.TrimLeft(rate, " ")
		rate, sign = strings.Repeat(" ", len(rate)-len(text))+t.Screen.Marked(text, report.Bad), ""
	}
	wait := "    -"
	if j.TokenWait != nil {
		wait = milliseconds(*j.TokenWait)
	}
	line := fmt.Sprintf("%*s %-10s %s%s[%s]  floor %s  wait %-7s", width, j.ID, j.Class, rate, sign, rateBar(j, bar), report.Percent(j.Floor), wait)
	if t.wide() {
		predicted := report.None
		if j.Predicted != nil {
			predicted = report.Percent(j.Predicted.Rate)
		}
		line += fmt.Sprintf("  pred %-5s", predicted)
	}
	return t.named(line, j)
}

// milliseconds is a time in 7 columns: " 0.1 ms", " 640 ms", "  6.4 s".
func milliseconds(ms float64) string {
	switch {
	case ms < 99.95:
		return fmt.Sprintf("%4.1f ms", ms)
	case ms < 999.5:
		return fmt.Sprintf("%4.0f ms", ms)
	}
	return fmt.Sprintf("%5.1f s", ms/1000)
}

// named appends a job's name where there is room for some of it.
func (t *Top) named(line string, j *box.Job) string {
	name := report.Clean(nameOf(j))
	if j.State != box.Running && j.State.Live() {
		name += " (" + string(j.State) + ")"
	}
	plain := report.Columns(colours.ReplaceAllString(line, ""))
	const least = 4
	if room := t.Screen.Columns() - 2 - plain - 2; room >= least {
		line += "  " + report.Shorten(name, room)
	}
	return strings.TrimRight(line, " ")
}

// colours are the codes around coloured text.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// rateBar draws a rate from 0 to 1; | is the floor.
func rateBar(j *box.Job, width int) string {
	bar := []byte(strings.Repeat(" ", width))
	if j.Rate != nil {
		for i := range min(max(int(*j.Rate*float64(width)), 0), width) {
			bar[i] = '='
		}
	}
	bar[cell(j.Floor, width)] = '|'
	return string(bar)
}

// waiter is the line of a job that waits.
func (t *Top) waiter(j *box.Job, width int) string {
	line := fmt.Sprintf("%*s %-10s %s  %6s  %s  %s", width, j.ID, j.Class, t.Screen.Marked("waits", report.Waiting), Span(t.timeOf(j)),
		report.Clean(j.User), report.Clean(Waits(j.Reason)))
	return t.named(line, j)
}

// shown says whether the reader wants to see a job.
func (t *Top) shown(j *box.Job) bool {
	if t.Mine != "" && j.User != t.Mine {
		return false
	}
	what := strings.ToLower(t.Filter)
	return what == "" || strings.Contains(strings.ToLower(nameOf(j)), what) || strings.Contains(strings.ToLower(j.User), what) ||
		strings.Contains(j.ID.String(), what)
}

func (t *Top) residents(g *box.GPU) []*box.Job {
	return t.chosen(func(j *box.Job) bool { return j.State.Live() && slices.Contains(j.On, g.Index) })
}

func (t *Top) waiting() []*box.Job {
	return t.chosen(func(j *box.Job) bool { return j.State == box.Waiting })
}

func (t *Top) chosen(is func(*box.Job) bool) []*box.Job {
	var list []*box.Job
	for i := range t.Jobs {
		if j := &t.Jobs[i]; is(j) && t.shown(j) {
			list = append(list, j)
		}
	}
	slices.SortStableFunc(list, t.compare)
	return list
}

// compare orders jobs: the least rate, the longest time first.
func (t *Top) compare(a, b *box.Job) int {
	first := 0
	switch t.Order {
	case ByRate:
		first = cmp.Compare(rateOr(a, math.Inf(1)), rateOr(b, math.Inf(1)))
	case ByUser:
		first = cmp.Compare(a.User, b.User)
	case ByTime:
		first = cmp.Compare(t.timeOf(b), t.timeOf(a))
	}
	return cmp.Or(first, cmp.Compare(a.ID, b.ID))
}

func rateOr(j *box.Job, otherwise float64) float64 {
	if j.Rate == nil {
		return otherwise
	}
	return *j.Rate
}
