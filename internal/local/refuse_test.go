package local

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/unit"
)

func errorAs[E error](err error, into *E) bool { return errors.As(err, into) }

// TestBadInput: each is refused with its place and a remedy, and nothing is filed.
func TestBadInput(t *testing.T) {
	b := open(t, 2)
	failed := b.submit("exit 1")
	b.done(failed)
	before := len(b.Jobs(me, true, ""))
	for name, c := range map[string]struct {
		change      func(*box.Spec)
		code, field string
	}{
		"no command":      {func(s *box.Spec) { s.Command = nil }, "no_command", "CMD"},
		"relative path":   {func(s *box.Spec) { s.Path = "sh" }, "no_command", "CMD"},
		"relative dir":    {func(s *box.Spec) { s.Dir = "here" }, "workdir", "workdir"},
		"NUL":             {func(s *box.Spec) { s.Env = []string{"A=\x00"} }, "nul", "CMD"},
		"name":            {func(s *box.Spec) { s.Name = "a\nb" }, "name", "name"},
		"floor 0":         {func(s *box.Spec) { s.Floor = 0 }, "floor", "floor"},
		"floor 1.2":       {func(s *box.Spec) { s.Floor = 1.2 }, "floor", "floor"},
		"priority":        {func(s *box.Spec) { s.Priority = 101 }, "priority", "priority"},
		"negative time":   {func(s *box.Spec) { s.MaxTime = -time.Second }, "max_time", "max-time"},
		"no GPU":          {func(s *box.Spec) { s.GPUs = 0 }, "gpus", "gpus"},
		"three GPUs":      {func(s *box.Spec) { s.GPUs = 3 }, "TooLarge", "gpus"},
		"32 GiB":          {func(s *box.Spec) { s.Memory = 32 * unit.GiB }, "TooLarge", "memory"},
		"1 MiB":           {func(s *box.Spec) { s.Memory = unit.MiB }, "memory_small", "memory"},
		"profile":         {func(s *box.Spec) { s.Profile = "brt-ft" }, "ProfileUnknown", "profile"},
		"array backwards": {func(s *box.Spec) { s.Array = &box.Array{First: 3, Last: 1} }, "array", "array"},
		"a million":       {func(s *box.Spec) { s.Array = &box.Array{Last: 999_999} }, "array_large", "array"},
		"after nothing":   {func(s *box.Spec) { s.After = []box.ID{999} }, "after", "after"},
		"after a failure": {func(s *box.Spec) { s.After = []box.ID{failed} }, "after_failed", "after"},
	} {
		_, err := b.Submit(me, spec("true", c.change))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if e := refused(t, err); e.Kind != box.BadInput || e.Code != c.code || e.Field != c.field || e.Fix == "" && e.Why == "" {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if after := len(b.Jobs(me, true, "")); after != before {
		t.Errorf("%d jobs were filed", after-before)
	}
}

// TestForbidden is the table of what a user may not do to another's job, and that all of it is allowed to its owner.
func TestForbidden(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root runs jobs of several users")
	}
	administrator := ""
	b := open(t, 1, func(o *Options) { o.Administer = func(user string) bool { return user == administrator } })
	ana, ben := box.Caller{UID: 12001, GID: 12001}, box.Caller{UID: 12002, GID: 12002}
	ids, err := b.Submit(ana, spec("sleep 60", func(s *box.Spec) { s.Command = append(s.Command, "secret"); s.Stdin = true }))
	if err != nil {
		t.Fatal(err)
	}
	id := ids[0]
	actions := map[string]func(box.Caller) error{
		"explain": func(c box.Caller) error { _, err := b.Explain(c, id); return err },
		"log":     func(c box.Caller) error { _, _, err := b.Log(c, id); return err },
		"wait": func(c box.Caller) error {
			ctx, cancel := timeout(t, 10*time.Millisecond)
			defer cancel()
			_, err := b.Wait(ctx, c, id)
			return err
		},
		"stdin": func(c box.Caller) error {
			null, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			return b.Stdin(c, id, null)
		},
		"stop": func(c box.Caller) error { _, err := b.Stop(c, id); return err },
	}
	for _, name := range []string{"explain", "log", "wait", "stdin", "stop"} {
		if err := actions[name](ben); err == nil || refused(t, err).Kind != box.Forbidden {
			t.Errorf("%s of another's job: %v", name, err)
		}
	}
	for _, caller := range []box.Caller{ana, ben} {
		if _, err := b.Drain(caller, 0, true); err == nil || refused(t, err).Kind != box.Forbidden {
			t.Errorf("drain: %v", err)
		}
	}
	if j, err := b.Job(ben, id); err != nil || len(j.Command) != 1 || j.Command[0] != "sh" {
		t.Errorf("another sees %v, %v", j.Command, err)
	}
	for _, name := range []string{"explain", "log", "wait", "stdin", "stop"} {
		if err := actions[name](ana); err != nil {
			t.Errorf("%s of her own job: %v", name, err)
		}
	}
	administrator = "12002"
	if err := actions["log"](ben); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	b.done(id)
}

// TestJobsRunAsTheirUser: whose job it is, not the daemon.
func TestJobsRunAsTheirUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root runs jobs of several users")
	}
	b := open(t, 1)
	ids, err := b.Submit(box.Caller{UID: 12001, GID: 12003}, spec("exec 2>&1; id -u; id -g; id -G; cat /etc/shadow"))
	if err != nil {
		t.Fatal(err)
	}
	j := b.done(ids[0])
	if got := b.log(ids[0]); j.User != "12001" || !strings.HasPrefix(got, "12001\n12003\n12003\n") || *j.Exit == 0 {
		t.Errorf("user %s: %q, exit %d", j.User, got, *j.Exit)
	}
}

// TestLimits: of one user, not of the others.
func TestLimits(t *testing.T) {
	b := open(t, 2, func(o *Options) { o.Limits = func(string) Limits { return Limits{MaxRunning: 1, MaxWaiting: 2} } })
	first := b.submit("sleep 30")
	b.until(first, "running", running)
	second := b.submit("true")
	j := b.until(second, "told why", func(j box.Job) bool { return j.Reason != nil && j.Reason.Code == "Quota" })
	if j.State != box.Waiting {
		t.Errorf("%+v", j)
	}
	b.submit("true")
	if _, err := b.Submit(me, spec("true")); err == nil || refused(t, err).Code != "Quota" {
		t.Errorf("a third waits: %v", err)
	}
}
