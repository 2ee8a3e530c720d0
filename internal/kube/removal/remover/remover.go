// Package remover carries out what internal/kube/removal decides.
package remover

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/look/reader"
	"weft.dev/weft/internal/kube/removal"
)

// Remover removes weft from one cluster.
type Remover struct {
	reader *reader.Reader
	client dynamic.Interface
	clock  func() time.Time
	calm   time.Time // since when nobody has a GPU and the door is closed; zero while that is not so
	door   door
}

// New is a remover that does nothing yet.
func New(r *reader.Reader, clock func() time.Time) (*Remover, error) {
	client, err := dynamic.NewForConfig(r.Config())
	if err != nil {
		return nil, err
	}
	return &Remover{reader: r, client: client, clock: clock}, nil
}

// Times of acting.
const (
	between  = 3 * time.Second        // two looks at who still has GPUs
	often    = 250 * time.Millisecond // between two looks at what is being removed
	patience = 2 * time.Minute        // that one stage may take
	undoTime = 30 * time.Second
)

// Release is the Helm release that an installation is of.
type Release struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// Found is an installation.
type Found struct {
	Namespace string
	Release   *Release // nil where Helm has nothing to do with it
}

// DefaultNamespace is where the manifest has weft.
const DefaultNamespace = "weft-system"

// Find finds out where weft is and who installed it.
func (r *Remover) Find(ctx context.Context) (Found, error) {
	f := Found{Namespace: DefaultNamespace}
	for _, o := range removal.Objects() {
		if o.Namespaced {
			continue
		}
		got, err := r.client.Resource(o.Resource).Get(ctx, o.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return f, r.fault("get", o, err)
		}
		if name := got.GetAnnotations()["meta.helm.sh/release-name"]; name != "" {
			f.Release = &Release{name, got.GetAnnotations()["meta.helm.sh/release-namespace"]}
			f.Namespace = f.Release.Namespace
			return f, nil
		}
		if subjects, ok := got.Object["subjects"].([]any); ok && len(subjects) > 0 { // of a binding
			if s, ok := subjects[0].(map[string]any); ok {
				f.Namespace, _ = s["namespace"].(string)
			}
		}
	}
	return f, nil
}

// See reads what is there. Objects of stages after the last are not asked for: whoever asks may not be allowed to.
func (r *Remover) See(ctx context.Context, namespace string, until removal.Stage) (*removal.World, error) {
	c, err := r.reader.Uses(ctx)
	if err != nil {
		return nil, err
	}
	w := &removal.World{Namespace: namespace, Pods: c.Pods, Claims: c.Claims}
	for _, s := range c.Slices {
		if s.Spec.Driver == kube.Driver {
			w.Slices = append(w.Slices, s.Name)
		}
	}
	for _, n := range c.Nodes {
		if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kube.ConditionServing }) {
			w.Nodes = append(w.Nodes, n.Name)
		}
	}
	closed, first := true, r.door.looked.IsZero()
	r.door.looked = r.clock()
	for _, o := range removal.Objects() {
		if o.Stage > until {
			continue
		}
		got, err := r.of(o, namespace).Get(ctx, o.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			r.door.short = r.door.short || first && o.Stage == removal.Door
			continue
		}
		if err != nil {
			return nil, r.fault("get", o, err)
		}
		if w.There = append(w.There, o); o.Stage == removal.Door {
			closed = false
			r.door.note(o, got)
		}
	}
	switch {
	case !closed || len(w.Held()) > 0:
		r.calm = time.Time{}
	case r.calm.IsZero():
		r.calm = r.clock()
	default:
		w.Calm = r.clock().Sub(r.calm)
	}
	return w, nil
}

// of is where an object is.
func (r *Remover) of(o removal.Object, namespace string) dynamic.ResourceInterface {
	if o.Namespaced {
		return r.client.Resource(o.Resource).Namespace(namespace)
	}
	return r.client.Resource(o.Resource)
}

func (r *Remover) fault(verb string, o removal.Object, err error) error {
	return r.reader.Fault(verb, o.Resource.GroupResource().String(), err)
}

// LeftError is what does not go.
type LeftError struct {
	Stage removal.Stage
	Left  []string
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("%s do not go within %v: %s", e.Stage, patience, strings.Join(e.Left, ", "))
}

// Options say what is wanted beside that.
type Options struct {
	removal.Options
	Namespace string
	Most      time.Duration // that is waited for Pods; 0 for as long as it takes
	Stay      bool          // a door that was closed stays so, whatever comes of it
}

// Outcome is what came of it.
type Outcome struct {
	Last    removal.Step // Done, or Refuse
	Began   bool         // something beside the door was removed
	Closed  bool         // the door is closed
	Changed bool         // anything is not as it was
	Stuck   error        // why the door could not be put back
}

// Run removes weft as far as it may. What it waits for, and what it does, is told first. Where it refuses, or the context ends, before more
// than the door is gone, the door is as it was.
func (r *Remover) Run(ctx context.Context, o Options, tell func(removal.Step)) (out Outcome, err error) {
	defer func() {
		if (err != nil || out.Last.Do == removal.Refuse) && !out.Began && !o.Stay {
			out.Stuck = r.open(ctx, o.Namespace)
		}
		out.Closed, out.Changed = r.door.closed || r.door.short, r.door.closed || out.Began
	}()
	began := r.clock()
	pace := pace{since: began}
	for {
		w, err := r.See(ctx, o.Namespace, o.Until)
		if err != nil {
			return out, err
		}
		o.Expired = o.Most > 0 && r.clock().Sub(began) >= o.Most
		step := removal.Next(w, o.Options)
		if step.Do == removal.Done || step.Do == removal.Refuse {
			out.Last = step
			return out, nil
		}
		if pace.tooSlow(&step, r.clock()) {
			return out, &LeftError{step.Stage, left(step)}
		}
		tell(step)
		out.Began = out.Began || step.Do == removal.Remove
		if err := r.carry(ctx, o.Namespace, step); err != nil {
			return out, err
		}
		pause := often
		if step.Why == removal.Held {
			pause = between
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// pace is how long one stage takes.
type pace struct {
	stage removal.Stage
	since time.Time
}

// tooSlow says whether what a step removes was to be gone long ago. Waiting for Pods takes as long as it takes.
func (p *pace) tooSlow(s *removal.Step, now time.Time) bool {
	if s.Do == removal.Wait || s.Stage != p.stage {
		p.stage, p.since = s.Stage, now
	}
	return now.Sub(p.since) > patience
}

// left is what a step names.
func left(s removal.Step) []string {
	var list []string
	for _, o := range s.Objects {
		list = append(list, o.String())
	}
	for i := range s.Pods {
		list = append(list, "pod/"+s.Pods[i].String())
	}
	for _, name := range s.Slices {
		list = append(list, "resourceslice/"+name)
	}
	for _, name := range s.Nodes {
		list = append(list, "a condition of node/"+name)
	}
	return list
}

// carry carries a step out. What is gone already, or changed meanwhile, is looked at again.
func (r *Remover) carry(ctx context.Context, namespace string, s removal.Step) error {
	if s.Do != removal.Close && s.Do != removal.Remove {
		return nil
	}
	foreground := metav1.DeletePropagationForeground // an object is there until what it made is gone
	for _, o := range s.Objects {
		if s.Do == removal.Close {
			r.door.closed = true
		}
		err := r.of(o, namespace).Delete(ctx, o.Name, metav1.DeleteOptions{PropagationPolicy: &foreground})
		if err != nil && !apierrors.IsNotFound(err) {
			return r.fault("delete", o, err)
		}
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		err := r.client.Resource(pods).Namespace(p.Namespace).Delete(ctx, p.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID, ResourceVersion: &p.Version}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return r.reader.Fault("delete", "pods", err)
		}
	}
	for _, name := range s.Slices {
		if err := r.client.Resource(resourceSlices).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return r.reader.Fault("delete", "resourceslices.resource.k8s.io", err)
		}
	}
	for _, name := range s.Nodes {
		if err := r.forget(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// Kinds without fixed names.
var (
	pods           = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodes          = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	resourceSlices = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceslices"}
)

// forget takes weft's condition from a node.
func (r *Remover) forget(ctx context.Context, node string) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []map[string]any{{"type": kube.ConditionServing, "$patch": "delete"}}}})
	if err != nil {
		return err
	}
	_, err = r.client.Resource(nodes).Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return r.reader.Fault("patch", "nodes/status", err)
}
