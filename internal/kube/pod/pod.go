// Package pod reads what users write on Pods, and rewrites Pods that share GPUs: nvidia.com/gpu becomes claims, a gate keeps the
// Pod until it is placed, and a label tells that it is weft's. Everything is pure; faults name the field of the Pod.
package pod

import (
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// Request is what a Pod asks of weft.
type Request struct {
	Floor      float64 // least share of its speed alone, in (0, 1]
	Class      cluster.Class
	Peak       unit.Bytes // of each GPU; 0 is unknown
	Profile    string     // "" for none
	Gang       int        // Pods that start together, this one among them; 1 for a Pod on its own
	Migratable bool       // it may be evicted, and resumes from a checkpoint
	Workers    []Worker   // at least one
}

// Worker is a container that computes on GPUs, with the containers before it that use the same ones.
type Worker struct {
	Claim     string // name of its ResourceClaim
	Name      string // of the claim in spec.resourceClaims
	Container string // that it is named for
	GPUs      int    // at least 1
}

// Defaults are what holds in the namespace of a Pod.
type Defaults struct {
	Floor    float64 // of Pods that name none; 0 counts as StandardFloor
	MinFloor float64 // that a Pod may name; 0 for any
	MaxFloor float64 // that a Pod may name; 0 for any
	Class    cluster.Class
	Share    bool // Pods share without asking for it
}

// StandardFloor is the floor where neither the Pod nor its namespace names one.
const StandardFloor = 0.9
