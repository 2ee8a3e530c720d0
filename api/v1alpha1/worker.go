package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Worker is what the driver must know of the worker that a claim is for. It travels as the opaque configuration of the claim,
// in JSON, and is not stored on its own.
//
// +kubebuilder:object:root=true
type Worker struct {
	metav1.TypeMeta `json:",inline"`

	Pod       string `json:"pod"`       // namespace/name
	Container string `json:"container"` // that the worker runs in
	Class     string `json:"class"`     // guaranteed, burstable or besteffort

	// Floor is the least share of its speed alone that the worker is to keep, in (0, 1].
	Floor float64 `json:"floor"`

	// Reserved is always there for the worker. Peak is the most that it may hold, Reserved included.
	Reserved resource.Quantity `json:"reserved"`
	Peak     resource.Quantity `json:"peak"`

	// Cooperates says that the worker hands memory over between iterations.
	Cooperates bool `json:"cooperates,omitempty"`

	// Weight is its part of a GPU beside others of its class, relative to theirs; 0 counts as 1.
	Weight int `json:"weight,omitempty"`
}
