package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/kube/look/reader"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/report/kubetable"
	"weft.dev/weft/internal/web/client"
)

// topTables are what weft top shows of a cluster.
var topTables = []string{"nodes", "gpus", "pods"}

// boxOnly refuses what is of a cluster.
func (c *topCommand) boxOnly() error {
	switch {
	case c.Once:
		return flagError("--once", "", "--once without a table of a cluster", "", "weft top pods --once; of this machine, weft ps")
	case c.Namespace != "":
		return flagError("--namespace", c.Namespace, "the jobs of this machine have no namespace", "", "weft top pods -n "+shellWord(c.Namespace))
	}
	return nil
}

// checkCluster finds the faults of a command line about a cluster.
func (c *topCommand) checkCluster() error {
	var faults []error
	if !slices.Contains(topTables, c.What) {
		faults = append(faults, flagError("WHAT", c.What, fmt.Sprintf("no table %q", c.What), "", "one of "+strings.Join(topTables, ", ")))
	}
	if c.State != "" {
		faults = append(faults, flagError("--state", c.State, "--state is of a daemon on this machine", "", "leave it out"))
	}
	if c.Namespace != "" && c.What != "pods" && slices.Contains(topTables, c.What) {
		faults = append(faults, flagError("--namespace", c.Namespace, c.What+" are in no namespace", "", "weft top pods -n "+shellWord(c.Namespace)))
	}
	return errors.Join(faults...)
}

// ofCluster shows a table of a cluster.
func (c *topCommand) ofCluster(ctx context.Context, s *session) error {
	if err := c.checkCluster(); err != nil {
		return asInput(err, c.JSON)
	}
	r, err := c.open(c.JSON)
	if err != nil {
		return err
	}
	input, isFile := s.stdin.(*os.File)
	if !c.Once && !c.JSON && s.tty && isFile && term.IsTerminal(int(input.Fd())) {
		return c.watch(ctx, s, r, input)
	}
	l, err := c.see(ctx, s, r, c.JSON)
	if err != nil {
		return err
	}
	if c.JSON {
		s.writeJSON(map[string]any{"schema": client.Schema, c.What: c.rows(l)})
		return nil
	}
	text, err := c.table(s.kubeView(), l)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(s.stdout, text)
	return err
}

// rows are those of the table.
func (c *topCommand) rows(l *look.Look) any {
	switch c.What {
	case "nodes":
		return l.Nodes()
	case "gpus":
		return l.GPUs()
	}
	return l.Pods(c.Namespace)
}

// table is what is shown of a cluster, as text.
func (c *topCommand) table(v kubetable.View, l *look.Look) (string, error) {
	var b strings.Builder
	var err error
	switch rows := c.rows(l).(type) {
	case []look.Node:
		if len(rows) == 0 {
			return "No node has GPUs that weft serves.\n", nil
		}
		err = v.Nodes(&b, rows)
	case []look.GPU:
		if len(rows) == 0 {
			return "No node has GPUs that weft serves.\n", nil
		}
		err = v.GPUs(&b, rows)
	case []look.Pod:
		if len(rows) == 0 {
			return "No Pod asks for a GPU.\n", nil
		}
		err = v.Pods(&b, rows)
	}
	return b.String(), err
}

// watch shows the table until the reader leaves.
func (c *topCommand) watch(ctx context.Context, s *session, r *reader.Reader, input *os.File) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	output := s.stdout
	if out, ok := output.(*sink); ok {
		output = out.w // the terminal itself, whose size is asked for
	}
	screen := &kubeScreen{view: s.kubeView(), clock: s.clock, place: placeOf(r), table: c.table,
		see: func() (*look.Look, error) { return c.see(ctx, s, r, false) }}
	_, err := tea.NewProgram(screen, tea.WithContext(ctx), tea.WithInput(input), tea.WithOutput(output), tea.WithoutSignalHandler()).Run()
	switch {
	case screen.broken != nil:
		return screen.broken
	case errors.Is(err, tea.ErrProgramKilled): // by a signal
		return statusError(exitInterrupted)
	}
	return err
}

// Times of the screen.
const (
	seeEvery = 5 * time.Second // all of a cluster is read
	aMoment  = time.Second
)

// Messages to the screen.
type (
	seenMsg struct {
		l   *look.Look
		err error
	}
	momentMsg time.Time
)

// kubeScreen is a table of a cluster that is read again and again.
type kubeScreen struct {
	view   kubetable.View
	clock  func() time.Time
	place  string
	see    func() (*look.Look, error)
	table  func(kubetable.View, *look.Look) (string, error)
	seen   *look.Look
	at     time.Time // of seen
	fault  error     // of the last attempt
	broken error     // that ends the screen
	from   int       // first row shown
	height int
	paused bool
	busy   bool // it is being read
}

// Init implements tea.Model.
func (k *kubeScreen) Init() tea.Cmd { return tea.Batch(k.read(), eachMoment()) }

func eachMoment() tea.Cmd {
	return tea.Tick(aMoment, func(now time.Time) tea.Msg { return momentMsg(now) })
}

func (k *kubeScreen) read() tea.Cmd {
	k.busy = true
	return func() tea.Msg {
		l, err := k.see()
		return seenMsg{l, err}
	}
}

// Update implements tea.Model.
func (k *kubeScreen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case tea.WindowSizeMsg:
		k.view.Screen.Width, k.height = m.Width, m.Height
	case momentMsg:
		k.view.Now = k.clock()
		if !k.paused && !k.busy && k.view.Now.Sub(k.at) >= seeEvery {
			return k, tea.Batch(k.read(), eachMoment())
		}
		return k, eachMoment()
	case seenMsg:
		k.busy, k.at, k.fault = false, k.clock(), m.err
		if m.err == nil {
			k.seen = m.l
		} else if k.seen == nil { // there never was anything to show
			k.broken = m.err
			return k, tea.Quit
		}
	case tea.KeyPressMsg:
		return k, k.pressed(m.String())
	}
	return k, nil
}

// pressed answers a key.
func (k *kubeScreen) pressed(key string) tea.Cmd {
	const far = 10
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "up", "k":
		k.from--
	case "down", "j":
		k.from++
	case "pgup":
		k.from -= far
	case "pgdown":
		k.from += far
	case "p":
		k.paused = !k.paused
	}
	return nil
}

// View implements tea.Model.
func (k *kubeScreen) View() tea.View {
	v := tea.NewView(k.frame())
	v.AltScreen = true
	return v
}

// frame is what the screen shows: a line about the cluster, the titles, and as many rows as there is room for.
func (k *kubeScreen) frame() string {
	if k.seen == nil {
		return "reading " + k.place
	}
	s := k.seen.Status()
	head := fmt.Sprintf("%d/%d nodes  %d GPUs  below floor %d  waiting %d", s.Serving, s.Nodes, s.GPUs, s.Below, s.Waiting)
	switch {
	case k.fault != nil:
		head += "  " + k.view.Screen.Marked("as of "+k.at.Local().Format("15:04:05")+": "+report.Clean(oneLine(k.fault)), report.Bad)
	case k.paused:
		head += "  paused"
	}
	text, err := k.table(k.view, k.seen)
	if err != nil {
		text = err.Error()
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	titles, rows := lines[0], lines[1:]
	room := max(1, k.height-2)
	k.from = max(0, min(k.from, len(rows)-room))
	rows = rows[k.from:min(len(rows), k.from+room)]
	return strings.Join(append([]string{head + "  " + k.view.Now.Local().Format("15:04:05"), titles}, rows...), "\n")
}
