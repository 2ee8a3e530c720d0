package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/user"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/report/boxtable"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/web/client"
)

// boxCommands are the commands of one shared machine that ask its daemon.
type boxCommands struct {
	Run        runCommand        `cmd:"" help:"Run a program as a job of this machine: queue, place, run, and end with its status."`
	Ps         psCommand         `cmd:"" help:"List jobs: state, place, rate against floor."`
	Logs       logsCommand       `cmd:"" help:"Show what a job printed."`
	Stop       stopCommand       `cmd:"" help:"End jobs: SIGTERM, and SIGKILL after 30 seconds."`
	Wait       waitCommand       `cmd:"" help:"Wait for jobs to end, and end with their status."`
	Top        topCommand        `cmd:"" help:"Watch the GPUs and their jobs, live."`
	Explain    explainCommand    `cmd:"" help:"Why does a job wait, or sit where it sits?"`
	Events     eventsCommand     `cmd:"" help:"What happened on this machine."`
	Gpus       gpusCommand       `cmd:"" help:"List the GPUs: health, use, memory, residents."`
	Status     statusCommand     `cmd:"" help:"Is the machine well?"`
	Drain      drainCommand      `cmd:"" help:"Take a GPU out of use, or back into it."`
	Config     configCommand     `cmd:"" help:"Check and show the configuration."`
	Completion completionCommand `cmd:"" help:"Write a script that completes weft's command line in a shell."`
	Complete   completeCommand   `cmd:"" name:"__complete" hidden:"" passthrough:"" help:"List completions of a command line."`
}

// exitForbidden is the exit code of what somebody else may do.
const exitForbidden = 5

// inputIn is the faults that an error tells the user, whatever its exit code; nil where it is another error.
func inputIn(err error) *inputError {
	var input *inputError
	var failed *failure
	switch {
	case errors.As(err, &failed):
		return &failed.inputError
	case errors.As(err, &input):
		return input
	}
	return nil
}

// statusError ends the program with a status, and says nothing more.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// boxAt says which daemon is asked.
type boxAt struct {
	State string `placeholder:"DIR" complete:":folders" help:"The daemon's folder. Default: $WEFT_STATE, the standard one, or that of the one daemon that runs."`
	JSON  bool   `name:"json" help:"Write JSON for programs."`
}

// dial finds the daemon. The client is to be closed.
func (c boxAt) dial(ctx context.Context) (*client.Client, error) {
	d, err := client.Find(ctx, c.State)
	if err != nil {
		return nil, c.fault(err)
	}
	d.Patience = 0
	return d, nil
}

// briefly is how much a command that asks one question and ends lets its heap grow before it collects: a list of a thousand jobs is
// shown 7 % sooner.
const briefly = 400 // %

// ask asks the daemon one question.
func ask[T any](ctx context.Context, c boxAt, question func(d *client.Client) (T, error)) (answer T, err error) {
	d, err := c.dial(ctx)
	if err != nil {
		return answer, err
	}
	defer d.Close()
	debug.SetGCPercent(briefly)
	if answer, err = question(d); err != nil {
		return answer, c.fault(err)
	}
	return answer, nil
}

// dialAbout finds the daemon to ask about jobs, which a command line names.
func (c boxAt) dialAbout(ctx context.Context, words []string) (*client.Client, []box.ID, error) {
	list, err := parseIDs(words)
	if err != nil {
		return nil, nil, asInput(err, c.JSON)
	}
	d, err := c.dial(ctx)
	return d, list, err
}

// fault is what the user is told of an error of the client, with its exit code.
func (c boxAt) fault(err error) error {
	var unreachable *client.UnreachableError
	var several *client.SeveralError
	var refusal *box.Error
	switch {
	case errors.As(err, &unreachable):
		return &failure{inputError{trace.Errors{c.absent(unreachable)}, c.JSON}, exitUnreachable}
	case errors.As(err, &several):
		return &inputError{trace.Errors{{Code: "several_daemons", File: "command line", Column: "state", Message: "several weft daemons run",
			Why: "they serve " + strings.Join(several.States, ", "), Fix: "--state " + shellWord(several.States[0])}}, c.JSON}
	case errors.As(err, &refusal):
		return c.refused(refusal)
	}
	return err
}

// absent says that no daemon answers, and how to start one.
func (c boxAt) absent(e *client.UnreachableError) *trace.Error {
	fix := "weft up"
	if state := c.State; state != "" {
		fix += " --state " + shellWord(state)
	}
	f := &trace.Error{Code: "unreachable", File: e.Socket, Message: "no weft daemon answers", Fix: fix}
	if errors.Is(e.Err, os.ErrPermission) {
		f.Why, f.Fix = "this user may not connect to it", "ask its user, or run a daemon of your own: weft up"
	}
	if e.Sent {
		f.Message, f.Why = "the weft daemon stopped answering", "it may have done what it was asked"
	}
	return f
}

// refused is a refusal of the daemon.
func (c boxAt) refused(e *box.Error) error {
	f := &trace.Error{Code: e.Code, Message: e.Message, Value: e.Value, Why: e.Why, Fix: e.Fix}
	if e.Field != "" {
		f.File, f.Column = "command line", e.Field
	}
	told := inputError{trace.Errors{f}, c.JSON}
	switch e.Kind {
	case box.Forbidden:
		return &failure{told, exitForbidden}
	case box.NotFound:
		return &failure{told, exitNotFound}
	case box.BadInput:
		return &told
	}
	return &failure{told, exitFailed}
}

// view is how tables look on the standard output, now.
func (s *session) view() boxtable.View {
	return boxtable.View{Now: s.clock(), Zone: time.Local, Screen: s.screen}
}

// next hints at the command that most people want next. Programs are told nothing.
func (s *session) next(command string) {
	if s.tty && !s.quiet {
		_, _ = fmt.Fprintln(s.stderr, "next: "+command)
	}
}

// say writes one of weft's own lines beside the output of a job.
func (s *session) say(format string, arguments ...any) {
	if !s.quiet {
		_, _ = fmt.Fprintf(s.stderr, "weft: "+format+"\n", arguments...)
	}
}

// mostIDs bounds the jobs that one command line names.
const mostIDs = 10_000

// parseIDs reads IDs and ranges of them: "44", "44-75", "44,46". IDs that repeat are taken once.
func parseIDs(words []string) ([]box.ID, error) {
	var list []box.ID
	for _, word := range words {
		for part := range strings.SplitSeq(word, ",") {
			first, last, err := idRange(part)
			if err != nil {
				return nil, err
			}
			if last-first >= mostIDs || uint64(len(list))+uint64(last-first) >= mostIDs {
				return nil, flagError("ID", word, "more than 10,000 jobs", "", "name fewer")
			}
			for id := first; id <= last; id++ {
				list = append(list, id)
			}
		}
	}
	seen := make(map[box.ID]bool, len(list))
	return slices.DeleteFunc(list, func(id box.ID) bool {
		again := seen[id]
		seen[id] = true
		return again
	}), nil
}

// parseID reads the ID of one job.
func parseID(word string) (box.ID, error) {
	list, err := parseIDs([]string{word})
	if err != nil {
		return 0, err
	}
	if len(list) != 1 {
		return 0, flagError("ID", word, "more than one job", "", "one at a time")
	}
	return list[0], nil
}

func idRange(text string) (first, last box.ID, err error) {
	a, b, isRange := strings.Cut(text, "-")
	if !isRange {
		b = a
	}
	x, bad := strconv.ParseUint(a, 10, 63)
	y, worse := strconv.ParseUint(b, 10, 63)
	switch {
	case bad != nil || worse != nil || x == 0 || y > math.MaxInt64:
		return 0, 0, flagError("ID", text, fmt.Sprintf("%q is no ID of a job", text), "jobs are numbered from 1", "44, or 44-75; weft ps --all lists them")
	case x > y:
		return 0, 0, flagError("ID", text, fmt.Sprintf("%s ends before it begins", text), "", fmt.Sprintf("%d-%d", y, x))
	}
	return box.ID(x), box.ID(y), nil
}

// userName is the name of this user, or its number.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Geteuid())
}

// gpuNumber reads "2" or "gpu2".
func gpuNumber(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(text, "gpu"))
	if err != nil || n < 0 || n > math.MaxInt16 {
		return 0, flagError("GPU", text, fmt.Sprintf("%q is no GPU", text), "", "gpu0, as weft gpus lists them")
	}
	return n, nil
}
