// Package removal decides how weft leaves a cluster: who still needs it, and what goes next. It is pure: it is handed what is there, and
// says one step. Who carries steps out reads the cluster again after each of them, so that it makes no difference who carried out the ones
// before, or where he stopped.
//
// Two things must never come about. A Pod must not outlive the driver that it was prepared by: its kubelet could not take that back, and
// the Pod would hang in Terminating. And a Pod must not be refused or held up for a weft that is gone.
package removal

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// Settle is how long nobody must have had a GPU, with the door closed, until the agents go: a scheduler that did not know yet that the
// classes are gone has bound its Pods by then.
const Settle = 3 * time.Second

// World is what is there.
type World struct {
	Namespace string // weft's
	Pods      []*corev1.Pod
	Claims    []*resourcev1.ResourceClaim
	There     []Object // of Objects
	Slices    []string // names of the driver's
	Nodes     []string // that have a condition of weft's
	Calm      time.Duration
}

// Options say what is wanted.
type Options struct {
	Until         Stage // the last that goes: Rights for all of weft
	Wait          bool  // for Pods to end
	Expired       bool  // it was waited long enough
	DeleteWaiting bool  // Pods behind the gate: their owners make them anew
	Keep          bool  // definitions, policies and profiles
}

// Deed is what is to be done next.
type Deed int

// The deeds.
const (
	Done   Deed = iota // nothing is left to do
	Refuse             // nothing may be done
	Close              // take the door away: what the step names is to be remembered, so that it can be put there again
	Wait               // look again in a while
	Remove             // what the step names
)

// Reason is why nothing is removed now.
type Reason string

// The reasons.
const (
	Held       Reason = "held"        // Pods have GPUs
	Queued     Reason = "waiting"     // Pods would wait for ever
	DriverGone Reason = "driver_gone" // Pods have GPUs, and nobody can take them back
	Settling   Reason = "settling"    // nobody has GPUs, for less than Settle
)

// Step is one deed.
type Step struct {
	Do      Deed
	Why     Reason // of Refuse and Wait
	Stage   Stage  // of Remove
	Objects []Object
	Pods    []Pod
	Slices  []string
	Nodes   []string
}

// empty says whether a step names nothing.
func (s *Step) empty() bool { return len(s.Objects)+len(s.Pods)+len(s.Slices)+len(s.Nodes) == 0 }

// Next is the step that a world asks for.
func Next(w *World, o Options) Step {
	held, waiting := w.Held(), w.Waiting()
	closed := len(w.at(Door)) == 0
	switch {
	case len(held) > 0 && !w.served():
		return Step{Do: Refuse, Why: DriverGone, Pods: held}
	case len(held) > 0 && (!o.Wait || o.Expired):
		return Step{Do: Refuse, Why: Held, Pods: held}
	case len(waiting) > 0 && !o.DeleteWaiting:
		return Step{Do: Refuse, Why: Queued, Pods: waiting}
	case !closed:
		return Step{Do: Close, Objects: w.at(Door)}
	case len(held) > 0:
		return Step{Do: Wait, Why: Held, Pods: held}
	case w.Calm < Settle && w.served():
		return Step{Do: Wait, Why: Settling}
	}
	for stage := Webhooks; stage <= o.Until; stage++ {
		if stage == Definitions && o.Keep {
			continue
		}
		s := Step{Do: Remove, Stage: stage, Objects: w.at(stage)}
		switch stage {
		case Queue:
			s.Pods = waiting
		case Traces:
			s.Slices, s.Nodes = w.Slices, w.Nodes
		}
		if !s.empty() {
			return s
		}
	}
	return Step{Do: Done}
}

// served says whether there is a driver that takes back what it prepared. Slices without agents of weft's own are those of one that somebody
// runs by himself, or of one that ended a moment ago.
func (w *World) served() bool { return len(w.at(Driver)) > 0 || len(w.Slices) > 0 }

// at are the objects of a stage that are there.
func (w *World) at(s Stage) []Object {
	var list []Object
	for _, o := range w.There {
		if o.Stage == s {
			list = append(list, o)
		}
	}
	return list
}

// Installed says whether anything of weft is there.
func (w *World) Installed() bool { return len(w.There)+len(w.Slices)+len(w.Nodes) > 0 }
