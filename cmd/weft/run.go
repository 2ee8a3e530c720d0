package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/config"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// runCommand hands a program in as a job.
type runCommand struct {
	boxAt
	Detach     bool     `short:"d" help:"Print the job's ID and go; weft logs -f and weft wait follow it."`
	Name       string   `placeholder:"N" help:"Name of the job. Default: that of the program."`
	Floor      string   `placeholder:"0.9" help:"Least share of its speed alone that it keeps, in (0, 1]. Default: 0.9, or as configured."`
	Class      string   `placeholder:"CLASS" complete:"classes" help:"How far it may be held back for others: guaranteed, burstable or besteffort. Default: burstable, or as configured."`
	Priority   string   `placeholder:"P" help:"0 to 100; higher ones go first. Default: 10, or as configured."`
	GPUs       int      `name:"gpus" default:"1" placeholder:"1" help:"GPUs that it needs, all at once."`
	Memory     string   `placeholder:"6GiB" help:"Memory of each GPU that it uses at most. It outdoes the profile's. Default: the profile's, or a quarter of the GPU."`
	Reserved   string   `placeholder:"2GiB" help:"What of --memory is always its own; the rest is lent to others between its iterations. With --cooperate."`
	Profile    string   `placeholder:"NAME" complete:"profiles" help:"What it is: a profile that this machine learned, or model:batch of weft catalogue."`
	Env        []string `sep:"none" placeholder:"K=V" help:"A variable of its environment, beside those that are set here. May repeat."`
	Workdir    string   `type:"path" placeholder:"DIR" complete:":folders" help:"Where it runs. Default: here."`
	After      []string `placeholder:"ID" complete:"jobs" help:"Jobs that must succeed first: IDs or ranges. May repeat."`
	MaxTime    string   `placeholder:"D" help:"End it when it ran that long: 90s, 2h30m, 1d, 1-12:00:00."`
	Migratable bool     `help:"SIGTERM makes it write a checkpoint from which the same command goes on: it may be moved."`
	Cooperate  bool     `help:"It hands unused memory over at its iterations (weft.torch, weft_iteration): its peak is lent to others meanwhile."`
	Array      string   `placeholder:"0-31" help:"One job for each index; each finds its own in WEFT_ARRAY_INDEX."`
	Command    []string `arg:"" passthrough:"" placeholder:"CMD" help:"The program and its arguments, after --."`
}

// Help is what weft run --help adds.
func (runCommand) Help() string {
	return `The job starts when a GPU can take it without breaking a floor: its own, or that of a job that is there. Until then weft
says why it waits. Standard input, output and error are the program's own, weft's lines begin with "weft: " and go to
standard error. Ctrl-C ends the job (SIGTERM, SIGKILL after 30 seconds); a second one leaves it to that. A terminal that is
closed ends nothing: the job goes on, weft logs -f shows the rest. The job sees the whole environment of this shell.

It ends with the status of the job; of an array with the first one that is not 0. Beside: 2 bad input, 4 no daemon, 124
--max-time was over, 125 trouble of weft, 126 not executable, 127 not found, 128 + n signal n.

Examples:
  weft run -- python train.py
  weft run --name gnn-tune --floor 0.8 -- python train.py --lr 0.1
  weft run -d --profile resnet50:64 --max-time 2h30m -- ./train.sh
  weft run -d --array 0-31 -- sh -c 'python sweep.py --seed $WEFT_ARRAY_INDEX'
  weft run --class besteffort --floor 0.2 --migratable -- ./probe`
}

// Run implements the command.
func (c *runCommand) Run(ctx context.Context, s *session) error {
	var err error
	if c.Command, err = commandIn(c.Command, "run", c.JSON); err != nil {
		return err
	}
	if c.JSON && !c.Detach {
		return asInput(flagError("json", "", "--json without -d", "the standard output is the job's", "weft run -d --json; weft wait --json tells how it ended"), true)
	}
	spec, err := c.spec(s)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 2) // from here on: one that comes while the job is handed in is for the job, too
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	d, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	input, isFile := s.stdin.(*os.File)
	spec.Stdin = !c.Detach && spec.Array == nil && isFile && usable(input)
	list, err := d.Submit(context.WithoutCancel(ctx), *spec)
	if err != nil {
		return c.notRun(err)
	}
	switch {
	case c.Detach:
		c.accepted(s, list)
		return nil
	case spec.Array != nil:
		return c.followAll(ctx, s, d, list)
	}
	f := &follower{at: c.boxAt, s: s, d: d, id: list[0]}
	if spec.Stdin {
		f.input = input
	}
	return f.follow(ctx, signals)
}

// accepted prints the ID, or the range of an array.
func (c *runCommand) accepted(s *session, list []box.ID) {
	if c.JSON {
		s.writeJSON(map[string]any{"schema": 1, "ids": list})
		return
	}
	text := idsInOneWord(list)
	_, _ = fmt.Fprintln(s.stdout, text) // the sink keeps a failure
	s.next("weft logs -f " + list[0].String())
}

// idsInOneWord writes IDs as every command takes them: "44", or "44-75".
func idsInOneWord(list []box.ID) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(list[i].String())
		if j > i {
			b.WriteString("-" + list[j].String())
		}
		i = j + 1
	}
	return b.String()
}

// notRun is why a job was not accepted: what is weft's fault has an exit code of its own.
func (c *runCommand) notRun(err error) error {
	err = c.fault(err)
	var failed *failure
	if errors.As(err, &failed) && failed.code == exitFailed {
		failed.code = exitTrouble
	}
	return err
}

// usable says whether a file is open.
func usable(f *os.File) bool {
	if f == nil {
		return false
	}
	_, err := f.Stat()
	return err == nil
}

// spec is the job that is asked for. All that is wrong with it is told at once; a program that cannot run has its own exit code.
func (c *runCommand) spec(s *session) (*box.Spec, error) {
	var faults trace.Errors
	note := func(err error) { faults = append(faults, faultsIn(err)...) }
	spec := &box.Spec{Name: c.Name, Command: c.Command, GPUs: c.GPUs, Profile: c.Profile, Cooperate: c.Cooperate, Migratable: c.Migratable}
	standard, err := config.Load(config.Standard(c.given()))
	switch input := inputIn(asInput(err, c.JSON)); {
	case err == nil:
		spec.Floor, spec.Class, spec.Priority = standard.Floor, standard.Class, standard.Priority
	case input == nil:
		return nil, err
	default:
		faults = input.faults
	}
	note(c.limits(spec))
	note(c.place(spec))
	if len(faults) > 0 {
		return nil, &inputError{faults, c.JSON}
	}
	path, err := findProgramIn(c.Command, spec.Dir)
	if input := inputIn(err); input != nil {
		input.json = c.JSON
	}
	if err != nil {
		return nil, err
	}
	spec.Path = path
	warn(s, path)
	if spec.Name == "" {
		spec.Name = filepath.Base(c.Command[0])
	}
	return spec, nil
}

// given is the flags that outdo the configuration.
func (c *runCommand) given() map[string]string {
	flags := map[string]string{}
	for name, value := range map[string]string{"floor": c.Floor, "class": c.Class, "priority": c.Priority} {
		if value != "" {
			flags[name] = value
		}
	}
	return flags
}

// limits reads what bounds the job.
func (c *runCommand) limits(spec *box.Spec) error {
	var faults trace.Errors
	note := func(err error) { faults = append(faults, faultsIn(err)...) }
	var err error
	if c.MaxTime != "" {
		spec.MaxTime, err = parseTime("max-time", c.MaxTime)
		note(err)
	}
	if c.Array != "" {
		spec.Array, err = parseArray(c.Array)
		note(err)
	}
	if len(c.After) > 0 {
		spec.After, err = parseIDs(c.After)
		note(err)
	}
	note(memoryFlag("memory", c.Memory, &spec.Memory))
	note(memoryFlag("reserved", c.Reserved, &spec.Reserved))
	if c.Reserved != "" && !c.Cooperate {
		note(flagError("reserved", c.Reserved, "--reserved without --cooperate", "a job that hands nothing over has all of its memory always", "--cooperate, or --memory alone"))
	} else if spec.Memory > 0 && spec.Reserved > spec.Memory {
		note(flagError("reserved", c.Reserved, fmt.Sprintf("%s reserved of %s", spec.Reserved, spec.Memory), "it is a part of --memory", "at most --reserved "+c.Memory))
	}
	if c.GPUs < 1 || c.GPUs > math.MaxInt16 {
		note(flagError("gpus", strconv.Itoa(c.GPUs), fmt.Sprintf("%d GPUs", c.GPUs), "", "at least 1"))
	}
	if i := strings.IndexFunc(c.Name, unicode.IsControl); i >= 0 || len(c.Name) > 200 {
		note(flagError("name", c.Name, "a name of one line and at most 200 letters", "", ""))
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// memoryFlag reads an amount of memory. An empty text is none.
func memoryFlag(flag, text string, into *unit.Bytes) error {
	if text == "" {
		return nil
	}
	b, err := unit.ParseBytes(text)
	switch {
	case err != nil:
		return flagError(flag, text, err.Error(), "", "6GiB")
	case b < unit.MiB:
		return flagError(flag, text, fmt.Sprintf("memory %s is below 1 MiB", b), "a number without a unit is bytes", text+"GiB")
	}
	*into = b
	return nil
}

// place is where the job runs, and its environment.
func (c *runCommand) place(spec *box.Spec) error {
	var faults trace.Errors
	here, err := os.Getwd()
	if err != nil {
		return flagError("workdir", "", "this folder is gone: "+err.Error(), "", "cd to another, or --workdir DIR")
	}
	spec.Dir = here
	if c.Workdir != "" {
		spec.Dir = c.Workdir
		if info, err := os.Stat(c.Workdir); err != nil || !info.IsDir() {
			faults = append(faults, faultsIn(flagError("workdir", c.Workdir, c.Workdir+" is no folder", "", "mkdir -p "+shellWord(c.Workdir)))...)
		}
	}
	spec.Env = ownEnvironment(os.Environ())
	for _, variable := range c.Env {
		name, _, ok := strings.Cut(variable, "=")
		if !ok || name == "" || strings.ContainsRune(variable, 0) {
			faults = append(faults, faultsIn(flagError("env", variable, fmt.Sprintf("%q sets nothing", variable), "variables that are set here are passed on as they are", "--env K=V"))...)
			continue
		}
		spec.Env = slices.DeleteFunc(spec.Env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
		spec.Env = append(spec.Env, variable)
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// daemonsOwn are the variables that weft sets for a job: those of another job, in which this command may run, are not passed on.
var daemonsOwn = []string{"WEFT_SOCKET", "WEFT_EMU_SOCKET", "WEFT_EMU_NAME", "WEFT_ARRAY_INDEX", "WEFT_JOB", "WEFT_JOB_ID", "WEFT_ATTEMPT", "WEFT_DIR"}

// ownEnvironment is the environment of this program without what weft added to it.
func ownEnvironment(environment []string) []string {
	var own []string
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		if slices.Contains(daemonsOwn, name) {
			continue
		}
		if name == "LD_PRELOAD" {
			kept := slices.DeleteFunc(strings.FieldsFunc(value, func(r rune) bool { return r == ':' || r == ' ' }),
				func(path string) bool { return filepath.Base(path) == "libweft.so" })
			if len(kept) == 0 {
				continue
			}
			variable = "LD_PRELOAD=" + strings.Join(kept, ":")
		}
		own = append(own, variable)
	}
	return own
}

// findProgramIn is the file that a command names, seen from the folder in which it is to run; absolute.
func findProgramIn(command []string, dir string) (string, error) {
	if len(command) > 0 && strings.ContainsRune(command[0], '/') && !filepath.IsAbs(command[0]) {
		seen := slices.Clone(command)
		seen[0] = filepath.Join(dir, command[0])
		path, err := findProgram(seen)
		if input := inputIn(err); input != nil {
			for _, f := range input.faults {
				f.Message, f.File = strings.ReplaceAll(f.Message, seen[0], command[0]), command[0]
				f.Fix = strings.ReplaceAll(f.Fix, seen[0], command[0])
			}
		}
		return path, err
	}
	path, err := findProgram(command)
	if err != nil {
		return "", err
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", fmt.Errorf("the folder of %s: %w", command[0], err)
	}
	return path, nil
}
