package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/kube/removal"
	"weft.dev/weft/internal/kube/removal/remover"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/web/client"
)

// uninstallCommand removes weft from a cluster.
type uninstallCommand struct {
	kubeAt
	Namespace     string `short:"n" placeholder:"NS" help:"Where weft is. Default: where its roles say."`
	Wait          bool   `help:"Wait until no Pod holds a GPU. No new one gets any meanwhile."`
	Timeout       string `placeholder:"D" help:"Wait so long at most, 2h or 3d; then nothing is changed."`
	DeleteWaiting bool   `help:"Delete Pods that wait behind weft's gate: their owners make them anew."`
	KeepCRDs      bool   `name:"keep-crds" help:"Leave policies and profiles, and the definitions of both."`
	DryRun        bool   `help:"Only say what would go, and what is in the way."`
	ForHelm       bool   `hidden:"" help:"Do what helm uninstall cannot: the hook of the chart."`
	JSON          bool   `name:"json" help:"Write JSON for programs."`
}

// Help is what weft uninstall --help adds.
func (uninstallCommand) Help() string {
	return `A Pod whose driver is gone cannot be deleted, so weft goes only when no Pod holds one
of its GPUs, native Pods among them. Those that do are listed. Ctrl-C leaves a cluster
that works: while it waits, all is put back as it was; after that, weft uninstall goes
on where it stopped. Helm's installations are prepared, and helm uninstall does the
rest. Exit code 1: Pods hold GPUs or wait, and nothing was changed; 3: something does
not go; more in docs/kube-commands.md.

Examples:
  weft uninstall --dry-run
  weft uninstall --wait --timeout 12h
  weft uninstall --wait --delete-waiting --keep-crds`
}

// Run implements the command.
func (c *uninstallCommand) Run(ctx context.Context, s *session) error {
	o, err := c.options()
	if err != nil {
		return asInput(err, c.JSON)
	}
	reader, err := c.open(c.JSON)
	if err != nil {
		return err
	}
	r, err := remover.New(reader, s.clock)
	if err != nil {
		return err
	}
	t := &uninstallTold{s: s, json: c.JSON, hook: c.ForHelm, where: remover.Found{Namespace: c.Namespace}}
	if !c.ForHelm {
		if t.where, err = r.Find(ctx); err != nil {
			return c.failed(err, c.JSON)
		}
		if c.Namespace != "" {
			t.where.Namespace = c.Namespace
		}
		if t.where.Release != nil {
			o.Until = removal.Queue
		}
	}
	if t.where.Release != nil && c.KeepCRDs {
		return asInput(flagError("--keep-crds", "", "Helm installed this weft, and its chart says what becomes of the CRDs", "", "helm upgrade --set crds.keep=true"), c.JSON)
	}
	o.Namespace = t.where.Namespace
	if c.DryRun {
		w, err := r.See(ctx, o.Namespace, removal.Rights)
		if err != nil {
			return c.failed(err, c.JSON)
		}
		return t.would(w, o.Options)
	}
	out, err := r.Run(ctx, o, t.step)
	s.progress.Done()
	return c.outcome(ctx, t, &out, err)
}

// options are what the command line asks for.
func (c *uninstallCommand) options() (remover.Options, error) {
	o := remover.Options{Options: removal.Options{Until: removal.Rights, Wait: c.Wait, DeleteWaiting: c.DeleteWaiting, Keep: c.KeepCRDs}, Stay: c.ForHelm}
	if c.ForHelm {
		o.Until = removal.Traces
		if c.Namespace == "" {
			return o, flagError("--for-helm", "", "--for-helm without the namespace of the release", "", "-n NAMESPACE")
		}
	}
	if c.Timeout == "" {
		return o, nil
	}
	if !c.Wait {
		return o, flagError("--timeout", c.Timeout, "--timeout without --wait", "", "add --wait")
	}
	var err error
	o.Most, err = parseTime("--timeout", c.Timeout)
	return o, err
}

// outcome tells how it ended, with its exit code.
func (c *uninstallCommand) outcome(ctx context.Context, t *uninstallTold, out *remover.Outcome, err error) error {
	var left *remover.LeftError
	if out.Stuck != nil {
		t.s.say("%s", oneLine(out.Stuck))
	}
	switch {
	case ctx.Err() != nil:
		return t.interrupted(out)
	case errors.As(err, &left):
		return t.partial(left)
	case err != nil:
		return c.failed(err, c.JSON)
	case out.Last.Do == removal.Refuse:
		return t.refused(&out.Last, out.Closed)
	}
	return t.done(out)
}

// uninstallTold tells what is done.
type uninstallTold struct {
	s     *session
	json  bool
	hook  bool // of Helm, which asked for it
	where remover.Found
	stage removal.Stage // that was told last; Door for none
	shown bool          // who is waited for
}

// uninstalled is the answer for programs.
type uninstalled struct {
	Schema    int              `json:"schema"`
	Outcome   string           `json:"outcome"` // removed, prepared, nothing, refused, partial, interrupted; would
	Namespace string           `json:"namespace"`
	Release   *remover.Release `json:"release"`
	Pods      []removal.Pod    `json:"pods"` // in the way
	Objects   []string         `json:"objects"`
	Closed    bool             `json:"closed"` // no new Pod gets a GPU
	Error     *trace.Error     `json:"error"`
}

// write writes the answer for programs.
func (t *uninstallTold) write(u uninstalled) {
	u.Schema, u.Namespace, u.Release = client.Schema, t.where.Namespace, t.where.Release
	if u.Pods == nil {
		u.Pods = []removal.Pod{}
	}
	if u.Objects == nil {
		u.Objects = []string{}
	}
	t.s.writeJSON(u)
}

// step tells a step that is about to be carried out.
func (t *uninstallTold) step(step removal.Step) {
	switch {
	case step.Do == removal.Wait && step.Why == removal.Held:
		if !t.shown && !t.json {
			t.pods(step.Pods)
		}
		t.shown = true
		t.s.progress.Report(waitsFor(step.Pods), 0, 0, "")
	case step.Do == removal.Remove && step.Stage != t.stage:
		t.stage = step.Stage
		t.s.progress.Done()
		t.s.say("removing %s", step.Stage)
	}
}

// waitsFor names Pods that are waited for.
func waitsFor(pods []removal.Pod) string {
	names := make([]string, len(pods))
	for i := range pods {
		names[i] = pods[i].String()
	}
	return fmt.Sprintf("waits for %s: %s", report.Several(len(names), "Pod"), strings.Join(names, ", "))
}

// pods shows who is in the way.
func (t *uninstallTold) pods(pods []removal.Pod) {
	_ = t.s.kubeView().Removal(t.s.stdout, pods) // the sink keeps the error
}

// refused says who is in the way, and what to do.
func (t *uninstallTold) refused(step *removal.Step, closed bool) error {
	f := refusal(step, t.where.Namespace)
	if t.json {
		t.write(uninstalled{Outcome: "refused", Pods: step.Pods, Closed: closed, Error: f})
		return statusError(exitFailed)
	}
	if !t.shown {
		t.pods(step.Pods)
	}
	if closed {
		t.s.say("no new Pod gets a GPU until weft is installed again, or removed")
	}
	return &failure{inputError{trace.Errors{f}, false}, exitFailed}
}

// refusal is why weft stays. namespace is its own.
func refusal(step *removal.Step, namespace string) *trace.Error {
	n := len(step.Pods)
	f := &trace.Error{Code: string(step.Why)}
	switch step.Why {
	case removal.Queued:
		f.Message = report.Several(n, "Pod") + report.Form(n, " waits", " wait") + " behind weft's gate"
		f.Why = "nobody would lift it any more"
		f.Fix = "delete them, or add --delete-waiting: their owners make them anew; Pods without an owner are gone"
	case removal.DriverGone:
		f.Message = report.Several(n, "Pod") + report.Form(n, " holds GPUs", " hold GPUs") + ", and the driver is gone"
		f.Why = "nobody can take back what it prepared, so they cannot be deleted"
		f.Fix = "install weft again as it was, then weft uninstall --wait"
	default:
		f.Message = report.Several(n, "Pod") + report.Form(n, " holds GPUs", " hold GPUs") + " of weft"
		f.Why = "a Pod whose driver is gone cannot be deleted"
		f.Fix = "end them, or weft uninstall --wait"
		for i := range step.Pods {
			if p := &step.Pods[i]; p.Orphaned && p.State != look.Running {
				f.Fix = "no agent runs on " + p.Node + ", and its Pods cannot end without one: kubectl get pods -n " + shellWord(namespace) + " -o wide tells more"
			}
		}
	}
	return f
}

// would says what would go.
func (t *uninstallTold) would(w *removal.World, o removal.Options) error {
	step := removal.Next(w, o)
	if step.Do == removal.Refuse {
		return t.refused(&step, false)
	}
	var names []string
	for _, x := range w.There {
		if x.Stage <= o.Until && !(o.Keep && x.Stage == removal.Definitions) {
			names = append(names, x.String())
		}
	}
	if o.Until >= removal.Traces {
		for _, name := range w.Slices {
			names = append(names, "resourceslices.resource.k8s.io/"+name)
		}
	}
	if t.json {
		t.write(uninstalled{Outcome: "would", Pods: append(w.Held(), w.Waiting()...), Objects: names})
		return nil
	}
	t.pods(append(w.Held(), w.Waiting()...))
	for _, name := range names {
		_, _ = fmt.Fprintln(t.s.stdout, name)
	}
	if !w.Installed() {
		_, _ = fmt.Fprintln(t.s.stdout, nothingOfWeft)
	}
	return nil
}

const nothingOfWeft = "Nothing of weft is in this cluster."

// done says what came of it.
func (t *uninstallTold) done(out *remover.Outcome) error {
	u, text := uninstalled{Outcome: "removed", Closed: out.Closed}, "weft is removed. Namespace "+t.where.Namespace+" is left, and labels weft.dev/share of namespaces."
	switch {
	case t.hook:
		u.Outcome, text = "prepared", "No Pod holds a GPU of weft. Agents and resource slices are removed; Helm removes the rest."
	case t.where.Release == nil && !out.Changed:
		u.Outcome, text = "nothing", nothingOfWeft
	case t.where.Release != nil:
		u.Outcome = "prepared"
		text = fmt.Sprintf("No Pod holds a GPU of weft, and no new one gets any. Helm removes the rest:\n  helm uninstall %s -n %s",
			shellWord(t.where.Release.Name), shellWord(t.where.Release.Namespace))
	}
	if t.json {
		t.write(u)
		return nil
	}
	_, err := fmt.Fprintln(t.s.stdout, text)
	return err
}

// partial says what does not go.
func (t *uninstallTold) partial(left *remover.LeftError) error {
	f := &trace.Error{Code: "left", Message: fmt.Sprintf("%s: %s", left.Stage, report.Several(len(left.Left), "object")+report.Form(len(left.Left), " does", " do")+" not go: "+strings.Join(left.Left, ", ")),
		Why: "somebody holds them by metadata.finalizers, or makes them anew", Fix: "kubectl get " + left.Left[0] + " -o yaml; then weft uninstall again"}
	if t.json {
		t.write(uninstalled{Outcome: "partial", Objects: left.Left, Closed: true, Error: f})
		return statusError(exitPartial)
	}
	return &failure{inputError{trace.Errors{f}, false}, exitPartial}
}

// interrupted says how far it came.
func (t *uninstallTold) interrupted(out *remover.Outcome) error {
	text := "interrupted: nothing is changed"
	switch {
	case out.Began:
		text = "interrupted: a part of weft is removed; weft uninstall goes on"
	case out.Closed:
		text = "interrupted: no new Pod gets a GPU until weft is installed again, or removed"
	}
	if t.json {
		t.write(uninstalled{Outcome: "interrupted", Closed: out.Closed})
	} else {
		t.s.say("%s", text)
	}
	return statusError(exitInterrupted)
}
