package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/spelling"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/web/client"
)

// pod is the name that follows "pod" on the command line, or its slash; false where it is about a job.
func (c *explainCommand) pod() (string, bool) {
	kind, name, slash := strings.Cut(c.ID, "/")
	if !slices.Contains([]string{"pod", "pods", "po"}, kind) {
		return "", false
	}
	if slash && c.Name != "" {
		return name + " " + c.Name, true
	}
	if !slash {
		name = c.Name
	}
	return name, true
}

// boxOnly refuses what is of a cluster.
func (c *explainCommand) boxOnly() error {
	switch {
	case c.Name != "":
		return flagError("ID", c.ID, fmt.Sprintf("%q is nothing that weft explains", c.ID), "", "weft explain pod "+shellWord(c.Name))
	case c.Namespace != "":
		return flagError("--namespace", c.Namespace, "a job of this machine has no namespace", "", "weft explain pod NAME -n "+shellWord(c.Namespace))
	case c.named():
		return flagError("--kubeconfig", c.Kubeconfig, "a job of this machine is in no cluster", "", "weft explain pod NAME")
	}
	return nil
}

// split is the namespace and the name of a Pod: "" where the command line names none.
func (c *explainCommand) split(text string) (namespace, name string, err error) {
	before, after, both := strings.Cut(text, "/")
	switch {
	case text == "":
		return "", "", flagError("POD", "", "explain which Pod?", "", "weft explain pod NAME -n NAMESPACE; weft top pods lists them")
	case strings.ContainsAny(text, " \t") || strings.Contains(after, "/") || both && (before == "" || after == ""):
		return "", "", flagError("POD", text, fmt.Sprintf("%q is no name of a Pod", text), "", "one name, or namespace/name")
	case both && c.Namespace != "" && c.Namespace != before:
		return "", "", flagError("--namespace", c.Namespace, fmt.Sprintf("%s is in namespace %s", text, before), "", "leave --namespace out")
	case both:
		return before, after, nil
	}
	return c.Namespace, text, nil
}

// explainPod explains a Pod of a cluster.
func (c *explainCommand) explainPod(ctx context.Context, s *session, text string) error {
	namespace, name, err := c.split(text)
	if err != nil {
		return asInput(err, c.JSON)
	}
	r, err := c.open(c.JSON)
	if err != nil {
		return err
	}
	if namespace == "" {
		namespace = r.Namespace
	}
	l, err := c.see(ctx, s, r, c.JSON)
	if err != nil {
		return err
	}
	e, found := l.Explain(namespace, name)
	if !found {
		return &failure{inputError{trace.Errors{missingPod(l, namespace, name)}, c.JSON}, exitNotFound}
	}
	if c.JSON {
		s.writeJSON(struct {
			Schema int `json:"schema"`
			look.Explanation
		}{client.Schema, e})
		return nil
	}
	return s.kubeView().Explain(s.stdout, &e)
}

// missingPod says that there is no such Pod, and which one may be meant: of that name elsewhere, or of a name like it.
func missingPod(l *look.Look, namespace, name string) *trace.Error {
	f := &trace.Error{Code: "not_found", Value: name, Message: fmt.Sprintf("there is no Pod %s/%s", namespace, name),
		Fix: "weft top pods lists those that ask for GPUs"}
	var near []string
	for _, p := range l.Pods("") {
		if p.Name == name {
			f.Fix = "weft explain pod " + shellWord(name) + " -n " + p.Namespace
			return f
		}
		if p.Namespace == namespace {
			near = append(near, p.Name)
		}
	}
	if like := spelling.Nearest(name, near); like != "" {
		f.Fix = like + "?"
	}
	return f
}
