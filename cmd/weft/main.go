// Command weft packs deep-learning jobs onto as few GPUs as their users' performance floors allow.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/internal/progress"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/shepherd"
	"weft.dev/weft/internal/trace"
)

// Exit codes, the same for every command.
const (
	exitOK          = 0
	exitFailed      = 1
	exitBadInput    = 2 // nothing was done
	exitPartial     = 3
	exitUnreachable = 4 // nothing answers
	exitNotFound    = 6
	exitInterrupted = 130
)

// commands is the whole command line.
type commands struct {
	Plan       planCommand       `cmd:"" help:"How many GPUs do these jobs need, and what does each lose?"`
	Sim        simCommand        `cmd:"" help:"Replay recorded jobs on a described cluster."`
	Demo       demoCommand       `cmd:"" help:"Run training jobs on emulated GPUs in three ways, and compare."`
	Generate   generateCommand   `cmd:"" help:"Write a synthetic job log to try the other commands on."`
	Profile    profileCommand    `cmd:"" help:"Turn a recording of GPU memory into a profile: what is always held, and the valleys."`
	Train      trainCommand      `cmd:"" help:"Fit an interference model to measured pairs and say how far to trust it."`
	Predict    predictCommand    `cmd:"" help:"What would two jobs lose beside each other? Or: how right is a model?"`
	Catalogue  catalogueCommand  `cmd:"" help:"What others measured of models alone: rates, utilisation, memory."`
	Agent      agentCommand      `cmd:"" help:"Serve the GPUs of this machine to several jobs, in turns."`
	Controller controllerCommand `cmd:"" help:"Place the Pods of a Kubernetes cluster that share GPUs."`
	Uninstall  uninstallCommand  `cmd:"" help:"Remove weft from a Kubernetes cluster, when no Pod needs it any more."`
	Exec       execCommand       `cmd:"" help:"Run a program as a job of the agent."`
	Emugpu     emugpuCommand     `cmd:"" help:"Serve emulated GPUs: programs for CUDA run on any machine, and take their time."`
	Up         upCommand         `cmd:"" help:"Run jobs of this machine: queue, placement, page."`
	Bench      benchCommand      `cmd:"" help:"What does weft cost on this node, and does it hold what it promises?"`

	boxCommands

	Version kong.VersionFlag `help:"Say which version this is."`

	Color string `enum:"auto,always,never" default:"auto" help:"Colour the output: auto, always or never."`
	Quiet bool   `short:"q" help:"No progress lines."`
}

// session is what a command may use of the world.
type session struct {
	stdin    io.Reader
	stdout   io.Writer
	stderr   io.Writer
	args     []string // the command line, for reports
	screen   report.Screen
	errors   report.Screen // the screen of stderr
	tty      bool          // stdout is a terminal
	quiet    bool
	progress *progress.Line
	// screenArgs are the flags about the screen, for a command that runs others.
	screenArgs []string
	clock      func() time.Time
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "shepherd" { // the process over one job, which is to be small
		os.Exit(shepherd.Main(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program without its process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var c commands
	out := &sink{w: stdout}
	parser, err := kong.New(&c, kong.Name("weft"), kong.Writers(out, stderr), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Description("weft packs deep-learning jobs onto as few GPUs as their users' performance floors allow."),
		kong.Vars{"formats": strings.Join(trace.Formats(), ", "), "version": version(), "gpus": strings.Join(emugpu.Models(), ", "),
			"learners": strings.Join(learnerNames(), ", ")},
		kong.Exit(func(code int) { panic(exit(code)) }), kong.UsageOnError())
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "error:", err)
		return exitFailed
	}
	s := &session{stdin: stdin, stdout: out, stderr: stderr, args: args, clock: time.Now}
	return s.ended(runParsed(ctx, parser, &c, s))
}

// exit is how kong ends the program after --help.
type exit int

func runParsed(ctx context.Context, parser *kong.Kong, c *commands, s *session) (code int) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case exit:
			code = int(r)
		default:
			panic(r)
		}
	}()
	if len(s.args) == 0 {
		s.args = []string{"--help"}
	}
	parsed, err := parser.Parse(s.args)
	if err != nil {
		return s.finish(s.misused(err))
	}
	s.look(c)
	parsed.BindTo(ctx, (*context.Context)(nil))
	err = parsed.Run(s)
	s.progress.Done()
	return s.finish(err)
}

// look sets up screens and progress for where the output goes.
func (s *session) look(c *commands) {
	s.screen, s.tty = screenOf(s.stdout, c.Color)
	var terminal bool
	s.errors, terminal = screenOf(s.stderr, c.Color)
	s.screenArgs, s.quiet = []string{"--color", c.Color}, c.Quiet
	if c.Quiet {
		s.screenArgs = append(s.screenArgs, "--quiet")
	}
	s.progress = progress.New(s.stderr, terminal, s.clock, c.Quiet)
}

// misused is a command line that does not parse, in JSON where that was asked for.
func (s *session) misused(err error) error {
	command := "weft"
	var parse *kong.ParseError
	if errors.As(err, &parse) {
		for _, word := range strings.Fields(parse.Context.Command()) {
			if strings.ContainsAny(word, "<[") {
				break // an argument
			}
			command += " " + word
		}
	}
	message := numbers.Replace(err.Error())
	if flag, _, ended := strings.Cut(message, ": expected "); ended && strings.HasSuffix(message, "<EOL>)") {
		message = flag + " wants a value"
	}
	return misuse(message, command, slices.Contains(s.args, "--json"))
}

// numbers puts what the parser of the command line says of numbers into a user's words.
var numbers = strings.NewReplacer("a valid 64 bit int", "a whole number", "a valid 64 bit uint", "a whole number", "an int", "a whole number",
	"a float", "a number")

// misuse is a fault of a command line that does not parse.
func misuse(message, command string, asJSON bool) error {
	return &inputError{trace.Errors{{Code: "usage", File: "command line", Message: message, Fix: "see " + command + " --help"}}, asJSON}
}

// screenOf is the screen behind a writer: as wide as the terminal, or 120 columns where there is none.
func screenOf(w io.Writer, color string) (report.Screen, bool) {
	screen := report.Screen{Width: report.WideWidth, Color: color == "always"}
	if out, ok := w.(*sink); ok {
		return screenOf(out.w, color)
	}
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return screen, false
	}
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
		screen.Width = width
	}
	if color == "auto" {
		screen.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	return screen, true
}

// errPartial is returned by a command that wrote a partial result after an interruption.
var errPartial = errors.New("interrupted: the result is partial")
