package main

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/web/client"
)

// Keys do to the screen of weft top what its help says.
func TestTopScreen(t *testing.T) {
	var asked box.ID
	now := time.Date(2026, 10, 30, 14, 32, 7, 0, time.UTC)
	screen := &topScreen{user: "ana", clock: func() time.Time { return now }, explain: func(id box.ID) tea.Cmd {
		asked = id
		return func() tea.Msg { return nil }
	}}
	send := func(message tea.Msg) tea.Cmd {
		_, command := screen.Update(message)
		return command
	}
	press := func(keys ...string) {
		for _, key := range keys {
			code, _ := utf8.DecodeRuneInString(key)
			k := tea.KeyPressMsg{Text: key, Code: code}
			switch key {
			case "enter":
				k = tea.KeyPressMsg{Code: tea.KeyEnter}
			case "esc":
				k = tea.KeyPressMsg{Code: tea.KeyEscape}
			case "down":
				k = tea.KeyPressMsg{Code: tea.KeyDown}
			case "backspace":
				k = tea.KeyPressMsg{Code: tea.KeyBackspace}
			}
			send(k)
		}
	}
	shows := func(texts ...string) {
		t.Helper()
		frame := screen.View().Content
		for _, text := range texts {
			if absent, not := strings.CutPrefix(text, "!"); strings.Contains(frame, strings.TrimPrefix(text, "!")) == not {
				t.Errorf("%q (absent: %v) of the screen\n%s", absent, not, frame)
			}
		}
	}
	send(tea.WindowSizeMsg{Width: 90, Height: 20})
	send(&client.State{Status: box.Status{Host: "box1", GPUs: 1, Waiting: 1}, GPUs: []box.GPU{{}}, Jobs: []box.Job{
		{ID: 41, Name: "resnet", User: "ana", State: box.Running, On: []int{0}}, {ID: 42, Name: "probe", User: "ben", State: box.Waiting}}})
	shows("box1  1 GPU", "14:32:07", "resnet", "probe", "!PAUSED")
	press("down", "down", "enter")
	if asked != 42 {
		t.Errorf("job %d was explained", asked)
	}
	send(explainedMsg{42, &box.Explanation{Job: box.Job{ID: 42, Name: "probe", State: box.Waiting}}, nil})
	shows("> 42", "Job 42 probe () waits")
	press("esc", "u")
	shows("!Job 42", "resnet", "!probe", "only of ana")
	press("u", "/", "p", "r", "x", "backspace")
	shows("/pr_", "probe", "!resnet")
	press("enter", "s")
	shows("only with pr", "s sort: rate")
	press("p")
	now = now.Add(time.Minute)
	send(tickMsg(now))
	send(&client.State{Status: box.Status{Host: "box2"}})
	shows("PAUSED", "box1", "14:32:07")
	press("p")
	shows("box2", "14:33:07", "!PAUSED")
	send(awayMsg(true))
	shows("AWAY")
	send(explainedMsg{42, nil, errors.New("there is no job 42")})
	shows("there is no job 42")
	if quit := send(tea.KeyPressMsg{Text: "q", Code: 'q'}); quit == nil {
		t.Error("q leaves nothing")
	}
	if quit := send(brokenMsg{errors.New("gone")}); quit == nil || screen.broken == nil {
		t.Error("a daemon that is gone leaves the screen")
	}
}
