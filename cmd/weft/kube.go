package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/kube/look/reader"
	"weft.dev/weft/internal/kube/webhook"
	"weft.dev/weft/internal/report/kubetable"
	"weft.dev/weft/internal/trace"
)

// kubeAt says which cluster is meant.
type kubeAt struct {
	Kubeconfig string `placeholder:"FILE" complete:":files" help:"Access to a cluster. Default: $KUBECONFIG, ~/.kube/config, or that of the Pod this runs in."`
	Context    string `placeholder:"NAME" help:"Context of that file. Default: its current one."`
}

// named says whether the command line speaks of a cluster.
func (c kubeAt) named() bool { return c.Kubeconfig != "" || c.Context != "" }

// kubeAgent is how the API server's log names these commands.
const kubeAgent = "weft"

// open finds the access to the cluster.
func (c kubeAt) open(asJSON bool) (*reader.Reader, error) {
	r, err := reader.Open(reader.Options{Kubeconfig: c.Kubeconfig, Context: c.Context, Agent: kubeAgent})
	if err != nil {
		return nil, c.failed(err, asJSON)
	}
	return r, nil
}

// see reads a cluster that has weft.
func (c kubeAt) see(ctx context.Context, s *session, r *reader.Reader, asJSON bool) (*look.Look, error) {
	if err := r.Installed(ctx); err != nil {
		return nil, c.failed(err, asJSON)
	}
	return c.read(ctx, s, r, asJSON)
}

// read reads a cluster. A policy that contradicts itself is as if there were none.
func (c kubeAt) read(ctx context.Context, s *session, r *reader.Reader, asJSON bool) (*look.Look, error) {
	seen, err := r.Read(ctx, s.clock())
	if err != nil {
		return nil, c.failed(err, asJSON)
	}
	if seen.Policy != nil {
		if faults := webhook.CheckPolicy(&seen.Policy.Spec); len(faults) > 0 {
			seen.Wrong = append(seen.Wrong, "SharingPolicy "+seen.Policy.Name+" contradicts itself, and is as if there were none: "+oneLine(faults.ToAggregate()))
			seen.Policy = nil
		}
	}
	return look.New(seen, estimate.Options{}), nil
}

// failed is what the user is told of an error of a cluster, with its exit code.
func (c kubeAt) failed(err error, asJSON bool) error {
	var access *reader.AccessError
	var unreachable *reader.UnreachableError
	var forbidden *reader.ForbiddenError
	var absent *reader.AbsentError
	told := func(f *trace.Error) inputError { return inputError{trace.Errors{f}, asJSON} }
	switch {
	case errors.As(err, &access) && access.None && c.Kubeconfig == "":
		return &failure{told(&trace.Error{Code: "no_kubeconfig", File: access.Place, Message: "no access to a cluster",
			Why: "neither --kubeconfig nor $KUBECONFIG nor ~/.kube/config names a file that is there, and this is no Pod", Fix: "--kubeconfig FILE"}), exitUnreachable}
	case errors.As(err, &access):
		f := told(&trace.Error{Code: "bad_kubeconfig", File: access.Place, Message: oneLine(access.Err),
			Fix: "kubectl config view --kubeconfig " + shellWord(access.Place)})
		if access.None {
			f.faults[0].Message, f.faults[0].Fix = "no such file", "check the path"
		}
		return &f
	case errors.As(err, &unreachable):
		return &failure{told(&trace.Error{Code: "unreachable", File: unreachable.Server, Message: "the cluster does not answer",
			Why: oneLine(unreachable.Err), Fix: "kubectl cluster-info tells whether it is this machine's network"}), exitUnreachable}
	case errors.As(err, &forbidden) && forbidden.Unknown:
		return &failure{told(&trace.Error{Code: "unauthorized", Message: "the cluster does not know who asks",
			Why: oneLine(forbidden.Err), Fix: "kubectl auth whoami; log in again"}), exitForbidden}
	case errors.As(err, &forbidden) && forbidden.Verb != "list" && forbidden.Verb != "get":
		return &failure{told(&trace.Error{Code: "forbidden", Value: forbidden.Resource,
			Message: fmt.Sprintf("you may not %s %s", forbidden.Verb, forbidden.Resource),
			Why:     oneLine(forbidden.Err), Fix: "ask an administrator of the cluster"}), exitForbidden}
	case errors.As(err, &forbidden):
		return &failure{told(&trace.Error{Code: "forbidden", Value: forbidden.Resource,
			Message: fmt.Sprintf("you may not %s %s in the whole cluster", forbidden.Verb, forbidden.Resource),
			Why:     oneLine(forbidden.Err), Fix: "ask for the ClusterRole in docs/kube-commands.md"}), exitForbidden}
	case errors.As(err, &absent) && absent.Old:
		return &failure{told(&trace.Error{Code: "too_old", Message: "this cluster is too old for weft",
			Why: absent.Error(), Fix: "Kubernetes 1.36 or later"}), exitUnreachable}
	case errors.As(err, &absent):
		return &failure{told(&trace.Error{Code: "not_installed", Message: "weft is not installed in this cluster",
			Why: absent.Error(), Fix: "helm install weft charts/weft"}), exitUnreachable}
	}
	return err
}

// oneLine is an error in one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// kubeView is how tables of a cluster look on the standard output, now.
func (s *session) kubeView() kubetable.View {
	return kubetable.View{Now: s.clock(), Zone: time.Local, Screen: s.screen}
}
