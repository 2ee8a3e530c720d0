package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/kube/look/reader"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// clusterFlags have the jobs read from a cluster.
type clusterFlags struct {
	FromCluster bool       `help:"Plan the Pods of a Kubernetes cluster that ask for GPUs, opted in or not."`
	Namespace   string     `short:"n" placeholder:"NS" help:"Only Pods of this namespace. Default: all."`
	Memory      unit.Bytes `placeholder:"8GiB" help:"Peak memory of the Pods of which it is not known. Default: all of a GPU."`
	kubeAt
}

// source refuses a command line that names no jobs, or two sources of them.
func (c *planCommand) source() error {
	f := &c.Cluster
	switch {
	case !f.FromCluster && (f.named() || f.Namespace != "" || f.Memory != 0):
		return flagError("--from-cluster", "", "--kubeconfig, --context, --namespace and --memory are of a cluster", "", "add --from-cluster, or leave them out")
	case !f.FromCluster && c.Jobs == "":
		return flagError("JOBS.csv", "", "no jobs to plan", "", "name a file, - for the standard input, or --from-cluster; see weft plan --help")
	case !f.FromCluster:
		return nil
	case c.Jobs != "":
		return flagError("--from-cluster", c.Jobs, "jobs from a file and from a cluster", "one plan is of one source", "leave one of the two out")
	}
	var faults []error
	if f.Memory != 0 && f.Memory < unit.MiB {
		faults = append(faults, flagError("--memory", f.Memory.String(), fmt.Sprintf("no job needs as little memory as %v", f.Memory),
			"a number without a unit is bytes", "write a unit, such as 8GiB"))
	}
	r := &c.Read
	for _, x := range []struct {
		flag string
		set  bool
	}{{"--format", r.Format != "csv"}, {"--mix", r.Mix != ""}, {"--rates", r.Rates != ""}, {"--vc", r.VC != ""}, {"--from", r.From != (trace.Bound{})},
		{"--to", r.To != (trace.Bound{})}, {"--submit-at", r.SubmitAt != nil}, {"--ignore-unknown", r.IgnoreUnknown}} {
		if x.set {
			faults = append(faults, flagError(x.flag, "", x.flag+" is of a file of jobs, and these come from a cluster", "", "leave it out"))
		}
	}
	return errors.Join(faults...)
}

// readCluster makes jobs of the Pods of a cluster.
func (c *planCommand) readCluster(ctx context.Context, s *session, in *planInput) (*planInput, error) {
	o, err := c.Read.options()
	if err != nil {
		return nil, err
	}
	w, err := c.workload(ctx, s, in)
	if err != nil {
		return nil, err
	}
	in.notes = append(append(in.notes, w.Notes...), o.Models.Apply(w.Jobs)...)
	if c.Sharing.GPUMemory == 0 {
		c.Sharing.GPUMemory = w.GPUMemory
	}
	profiles, unknown, err := c.clusterMemory(w)
	if err != nil {
		return nil, err
	}
	in.notes = append(in.notes, fmt.Sprintf("%s: %d opted in, %d run; those that did not opt in are counted as if they had",
		report.Several(w.Pods, "Pod"), w.Shared, w.Running))
	if n := nameless(w.Jobs); n > 0 {
		in.notes = append(in.notes, fmt.Sprintf("%d of %s name no model: not shared; annotate weft.dev/profile, or name them with --models MAP.csv",
			n, report.Several(len(w.Jobs), "job")))
	}
	switch {
	case c.Sharing.GPUMemory == 0:
		in.notes = append(in.notes, "weft serves no GPU of this cluster yet: --gpu-memory says how much memory each has", noLimit)
	case unknown > 0 && c.Cluster.Memory > 0:
		in.notes = append(in.notes, fmt.Sprintf("%s of unknown memory: counted with --memory %v", report.Several(unknown, "job"), c.Cluster.Memory))
	case unknown > 0:
		in.notes = append(in.notes, fmt.Sprintf("%s of unknown memory: each worker takes a GPU whole; annotate weft.dev/memory, or try --memory 8GiB",
			report.Several(unknown, "job")))
	}
	c.keepFitting(in, w.Jobs, profiles)
	in.note(ctx, c)
	return in, nil
}

// workload is what runs and waits in the cluster. Without weft in it, there are Pods just the same.
func (c *planCommand) workload(ctx context.Context, s *session, in *planInput) (*look.Workload, error) {
	r, err := c.Cluster.open(c.JSON)
	if err != nil {
		return nil, err
	}
	var absent *reader.AbsentError
	if err := r.Installed(ctx); errors.As(err, &absent) {
		in.notes = append(in.notes, "weft is not installed in this cluster: "+absent.Error())
	} else if err != nil {
		return nil, c.Cluster.failed(err, c.JSON)
	}
	l, err := c.Cluster.read(ctx, s, r, c.JSON)
	if err != nil {
		return nil, err
	}
	w := l.Workload(c.Cluster.Namespace, c.Read.Floor)
	return &w, nil
}

// clusterMemory is what each job needs: as its Pod or its profile says, else as the map of models or the catalogue does, else all of a GPU.
func (c *planCommand) clusterMemory(w *look.Workload) (profiles []profile.Profile, unknown int, err error) {
	named, _, err := memory(w.Jobs)
	if err != nil {
		return nil, 0, err
	}
	for j := range w.Jobs {
		m := &w.Memory[j]
		p, known := m.Profile, m.Known
		if !known {
			p, known = named[j], named[j].Peak() > 0
		}
		if !known {
			p, known = measured(&w.Jobs[j])
		}
		if m.Alone {
			w.Jobs[j].Model, w.Jobs[j].Batch = "", ""
		}
		if !known {
			unknown++
			p = profile.Flat(cmp.Or(c.Cluster.Memory, c.Sharing.GPUMemory))
		}
		profiles = append(profiles, p)
	}
	return profiles, unknown, nil
}

// measured is the largest memory that the catalogue has for a job's model.
func measured(j *cluster.Job) (most profile.Profile, known bool) {
	if j.Model == "" {
		return most, false
	}
	for _, e := range catalogue.All() {
		if e.Model == j.Model && e.Batch == j.Batch {
			if p, ok := e.Profile(); ok && p.Peak() > most.Peak() {
				most, known = p, true
			}
		}
	}
	return most, known
}

// nameless counts jobs without a model.
func nameless(jobs []cluster.Job) int {
	n := 0
	for j := range jobs {
		if jobs[j].Model == "" {
			n++
		}
	}
	return n
}
