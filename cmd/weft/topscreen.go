package main

import (
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/report/boxtable"
	"weft.dev/weft/internal/web/client"
)

// Messages to the screen, beside *client.State: what is known now.
type (
	tickMsg      time.Time
	awayMsg      bool
	brokenMsg    struct{ err error }
	explainedMsg struct {
		id  box.ID
		e   *box.Explanation
		err error
	}
)

// topScreen is what weft top shows and how it answers keys.
type topScreen struct {
	top     boxtable.Top
	latest  *client.State // shown once it is no longer paused
	explain func(box.ID) tea.Cmd
	user    string
	clock   func() time.Time
	broken  error
}

// Init implements tea.Model.
func (t *topScreen) Init() tea.Cmd { return tick() }

func tick() tea.Cmd {
	return tea.Tick(time.Second, func(now time.Time) tea.Msg { return tickMsg(now) })
}

// Update implements tea.Model.
func (t *topScreen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case tea.WindowSizeMsg:
		t.top.Screen.Width, t.top.Height = m.Width, m.Height
	case tickMsg:
		if !t.top.Paused {
			t.top.Now = t.clock()
		}
		return t, tick()
	case *client.State:
		t.latest = m
		t.show()
	case awayMsg:
		t.top.Away = bool(m)
	case brokenMsg:
		t.broken = m.err
		return t, tea.Quit
	case explainedMsg:
		t.detail(&m)
	case tea.KeyPressMsg:
		if t.top.Typing {
			return t, t.typed(m)
		}
		return t, t.pressed(m.String())
	}
	return t, nil
}

// show shows the latest state, unless the screen is paused.
func (t *topScreen) show() {
	if t.latest == nil || t.top.Paused {
		return
	}
	t.top.Status, t.top.Jobs, t.top.GPUs, t.top.Now = t.latest.Status, t.latest.Jobs, t.latest.GPUs, t.clock()
}

func (t *topScreen) detail(m *explainedMsg) {
	var b strings.Builder
	if m.err != nil {
		b.WriteString(m.err.Error())
	} else if err := t.top.Explain(&b, m.e); err != nil {
		b.WriteString(err.Error())
	}
	t.top.Chosen, t.top.Detail = m.id, b.String()
}

// pressed answers a key.
func (t *topScreen) pressed(key string) tea.Cmd {
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "up", "k":
		t.move(-1)
	case "down", "j":
		t.move(1)
	case "pgup":
		t.move(-10)
	case "pgdown":
		t.move(10)
	case "enter":
		if t.top.Chosen != 0 {
			return t.explain(t.top.Chosen)
		}
	case "esc":
		t.top.Detail, t.top.Chosen = "", 0
	case "s":
		t.top.Order = t.top.Order.Next()
	case "u":
		if t.top.Mine != "" {
			t.top.Mine = ""
		} else {
			t.top.Mine = t.user
		}
	case "/":
		t.top.Typing = true
	case "p":
		t.top.Paused = !t.top.Paused
		t.show()
	}
	return nil
}

func (t *topScreen) move(by int) {
	t.top.Move(by)
	t.top.Detail = ""
}

// typed edits the filter.
func (t *topScreen) typed(m tea.KeyPressMsg) tea.Cmd {
	switch m.String() {
	case "ctrl+c":
		return tea.Quit
	case "enter":
		t.top.Typing = false
	case "esc":
		t.top.Typing, t.top.Filter = false, ""
	case "backspace":
		if letters := []rune(t.top.Filter); len(letters) > 0 {
			t.top.Filter = string(letters[:len(letters)-1])
		}
	default:
		const most = 40
		if text := m.Text; len(t.top.Filter)+len(text) <= most {
			t.top.Filter += text
		}
	}
	return nil
}

// View implements tea.Model.
func (t *topScreen) View() tea.View {
	v := tea.NewView(strings.TrimSuffix(t.top.Frame(), "\n"))
	v.AltScreen = true
	return v
}
