package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Window is what became of a worker over a while, as the agent of its node saw it. It travels as the data of the claim's first
// device in the claim's status, in JSON, and replaces the one before. All of it was seen beside the same number of others: a window ends
// when somebody comes or goes. Times are in seconds, of one of the worker's processes on one of its GPUs.
//
// +kubebuilder:object:root=true
type Window struct {
	metav1.TypeMeta `json:",inline"`

	End     metav1.MicroTime `json:"end"`
	Seconds float64          `json:"seconds"` // its length, above 0
	Age     float64          `json:"age"`     // of the worker's oldest process on a GPU, at the end; 0 for no process

	Wait  float64 `json:"wait"`  // for its turn
	Stall float64 `json:"stall"` // for memory that others hold
	Held  float64 `json:"held"`  // in which it was its turn
	Used  float64 `json:"used"`  // in which it computed, by its own account

	Iterations  int64   `json:"iterations"`
	Utilisation float64 `json:"utilisation"` // of its first GPU by all who are on it, as the driver says, in [0, 1]
	Beside      int     `json:"beside"`      // other workers on its GPUs

	// Peak is the most memory that it has held on one of its GPUs since its claim was prepared.
	Peak resource.Quantity `json:"peak"`
}
