// Package v1alpha1 is what weft adds to the Kubernetes API: SharingPolicy, by which an administrator says how GPUs are
// shared in a cluster, and WorkloadProfile, by which weft knows what a kind of job needs. Worker and Window are no objects of their own:
// the first is what a claim tells the driver of one worker, the second what the driver tells of it in return.
//
// Fractions are decimal texts ("0.9"): the API has no floating-point numbers, and people read and write what they mean.
//
// +kubebuilder:object:generate=true
// +groupName=weft.dev
package v1alpha1

//go:generate go tool -modfile=../../tools/go.mod controller-gen object crd paths=. output:crd:dir=../../charts/weft/files/crds
