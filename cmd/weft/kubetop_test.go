package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/report/kubetable"
)

// screenOfRows is a screen over an empty cluster, with a table of so many rows.
func screenOfRows(rows int) *kubeScreen {
	now := time.Date(2026, 11, 30, 14, 32, 7, 0, time.Local)
	table := func(kubetable.View, *look.Look) (string, error) {
		var b strings.Builder
		b.WriteString("TITLE\n")
		for i := range rows {
			fmt.Fprintf(&b, "row %d\n", i)
		}
		return b.String(), nil
	}
	return &kubeScreen{view: kubetable.View{Now: now, Screen: report.Screen{Width: 80}}, clock: func() time.Time { return now }, place: "cluster x", table: table,
		see: func() (*look.Look, error) { return seenNow(now), nil }}
}

func seenNow(now time.Time) *look.Look {
	return look.New(&look.Cluster{Cluster: queue.Cluster{Now: now}}, estimate.Options{})
}

func press(k *kubeScreen, keys ...string) {
	for _, key := range keys {
		k.pressed(key)
	}
}

func TestKubeScreenScrolls(t *testing.T) {
	k := screenOfRows(20)
	if got := k.frame(); got != "reading cluster x" {
		t.Errorf("%q", got)
	}
	k.Update(k.read()())
	k.Update(tea.WindowSizeMsg{Width: 80, Height: 5})
	for _, c := range []struct {
		keys  string
		first string
	}{{"", "row 0"}, {"down", "row 1"}, {"pgdown", "row 11"}, {"pgdown", "row 17"}, {"down", "row 17"}, {"up", "row 16"}, {"pgup", "row 6"}, {"pgup", "row 0"}, {"up", "row 0"}} {
		press(k, c.keys)
		lines := strings.Split(k.frame(), "\n")
		if len(lines) != 5 || lines[1] != "TITLE" || lines[2] != c.first {
			t.Errorf("after %q: %q", c.keys, lines)
		}
	}
	k.Update(tea.WindowSizeMsg{Width: 80, Height: 0})
	if lines := strings.Split(k.frame(), "\n"); len(lines) != 3 {
		t.Errorf("without room: %q", lines)
	}
	if head, _, _ := strings.Cut(k.frame(), "\n"); head != "0/0 nodes  0 GPUs  below floor 0  waiting 0  14:32:07" {
		t.Errorf("%q", head)
	}
}

// TestKubeScreenReads: the cluster is read anew every five seconds, not while it is being read, and not while the screen is paused.
func TestKubeScreenReads(t *testing.T) {
	k := screenOfRows(1)
	now, reads := k.view.Now, 0
	k.clock = func() time.Time { return now }
	k.see = func() (*look.Look, error) { reads++; return seenNow(now), nil }
	k.Init()
	if !k.busy {
		t.Fatal("it does not begin to read")
	}
	now = now.Add(time.Minute)
	k.Update(momentMsg(now))
	k.Update(seenMsg{seenNow(now), nil})
	for i, want := range []bool{false, false, false, false, true, true} { // seconds after: busy
		now = now.Add(time.Second)
		if k.Update(momentMsg(now)); k.busy != want {
			t.Errorf("after %d s it reads: %t, want %t", i+1, k.busy, want)
		}
	}
	k.Update(seenMsg{nil, errors.New("the cluster\ndoes not answer")})
	if got := k.frame(); !strings.Contains(got, "as of 14:33:13: the cluster does not answer!") || !strings.Contains(got, "row 0") {
		t.Errorf("%q", got)
	}
	press(k, "p")
	now = now.Add(time.Hour)
	if k.Update(momentMsg(now)); k.busy {
		t.Error("it reads while it is paused")
	}
	k.Update(seenMsg{seenNow(now), nil})
	if got := k.frame(); !strings.Contains(got, "paused") {
		t.Errorf("%q", got)
	}
	if press(k, "p"); k.paused {
		t.Error("it stays paused")
	}
}

// TestKubeScreenEnds: the screen ends by key, and where there never was anything to show.
func TestKubeScreenEnds(t *testing.T) {
	k := screenOfRows(1)
	for _, key := range []string{"q", "ctrl+c"} {
		if command := k.pressed(key); command == nil || command() != tea.Quit() {
			t.Errorf("%s does not end it", key)
		}
	}
	failed := errors.New("forbidden")
	if _, command := k.Update(seenMsg{nil, failed}); command == nil || !errors.Is(k.broken, failed) {
		t.Error("it goes on though it never saw the cluster")
	}
}
