package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyName is the name of the only policy of a cluster.
const PolicyName = "default"

// SharingPolicy says how the GPUs of a cluster are shared. There is one, named default; without it, the defaults of its fields
// are in force.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Epsilon",type=string,JSONPath=`.spec.epsilon`
// +kubebuilder:printcolumn:name="Residents",type=integer,JSONPath=`.spec.residents`
// +kubebuilder:printcolumn:name="Floor",type=string,JSONPath=`.spec.defaults.floor`
// +kubebuilder:printcolumn:name="Moves",type=integer,JSONPath=`.spec.migration.moves`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="metadata.name: a cluster has one policy: name it default"
type SharingPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={}
	Spec SharingPolicySpec `json:"spec,omitempty"`
	// +optional
	Status SharingPolicyStatus `json:"status,omitempty"`
}

// SharingPolicySpec is the policy.
type SharingPolicySpec struct {
	// Epsilon is the accepted probability that jobs on a GPU want more memory than it has at some instant, in [0, 1). "0" counts
	// every job at its peak.
	//
	// +optional
	// +kubebuilder:default="0.05"
	// +kubebuilder:validation:XValidation:rule="self.matches('^0([.][0-9]+)?$')",message="a probability in [0, 1), such as 0.05"
	Epsilon Fraction `json:"epsilon,omitempty"`

	// Residents is how many workers may share a GPU.
	//
	// +optional
	// +kubebuilder:default=4
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Residents int32 `json:"residents,omitempty"`

	// Defaults are the terms of namespaces, where Namespaces says nothing else.
	//
	// +optional
	// +kubebuilder:default={floor: "0.9"}
	Defaults Terms `json:"defaults,omitempty"`

	// Namespaces have terms of their own. What one leaves out is as in Defaults.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	Namespaces []NamespaceTerms `json:"namespaces,omitempty"`

	// Migration bounds how often Pods that are migratable are moved.
	//
	// +optional
	// +kubebuilder:default={}
	Migration Migration `json:"migration,omitempty"`
}

// Terms are what the Pods of a namespace get.
//
// +kubebuilder:validation:XValidation:rule="!has(self.floor) || !has(self.minFloor) || double(self.floor) >= double(self.minFloor)",fieldPath=".floor",message="below minFloor",messageExpression="self.floor + ' is below minFloor ' + self.minFloor"
// +kubebuilder:validation:XValidation:rule="!has(self.floor) || !has(self.maxFloor) || double(self.floor) <= double(self.maxFloor)",fieldPath=".floor",message="above maxFloor",messageExpression="self.floor + ' is above maxFloor ' + self.maxFloor"
// +kubebuilder:validation:XValidation:rule="!has(self.minFloor) || !has(self.maxFloor) || double(self.minFloor) <= double(self.maxFloor)",fieldPath=".minFloor",message="above maxFloor",messageExpression="self.minFloor + ' is above maxFloor ' + self.maxFloor"
type Terms struct {
	// Floor of Pods that name none: the least share of their speed alone, in (0, 1].
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0[.][0-9]*[1-9][0-9]*|1([.]0+)?)$')",message="a share of the speed alone in (0, 1]: write 0.9 for 90 %"
	Floor Fraction `json:"floor,omitempty"`

	// MinFloor is the least floor that a Pod may name, in (0, 1].
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0[.][0-9]*[1-9][0-9]*|1([.]0+)?)$')",message="a share of the speed alone in (0, 1]: write 0.9 for 90 %"
	MinFloor Fraction `json:"minFloor,omitempty"`

	// MaxFloor is the highest floor that a Pod may name, in (0, 1].
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0[.][0-9]*[1-9][0-9]*|1([.]0+)?)$')",message="a share of the speed alone in (0, 1]: write 0.9 for 90 %"
	MaxFloor Fraction `json:"maxFloor,omitempty"`

	// Class of Pods that name none; burstable where nothing is said.
	//
	// +optional
	// +kubebuilder:validation:Enum=guaranteed;burstable;besteffort
	Class string `json:"class,omitempty"`

	// Quota is how many GPUs the Pods of the namespace that share may be on together, each worker counted as one. Without it there
	// is no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Quota *int32 `json:"quota,omitempty"`

	// Weight is the namespace's share of the GPUs relative to others' when all of them wait; 1 where nothing is said.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Weight *int32 `json:"weight,omitempty"`
}

// NamespaceTerms are the terms of one namespace.
type NamespaceTerms struct {
	// Name of the namespace.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="not the name of a namespace"
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	Terms `json:",inline"`
}

// Migration is a budget.
type Migration struct {
	// Moves that may begin in each hour, in the whole cluster; 0 for none.
	//
	// +optional
	// +kubebuilder:default=12
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Moves *int32 `json:"moves,omitempty"`

	// CooldownSeconds is how long a Pod that moved, and what replaces it, is left alone.
	//
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	CooldownSeconds *int32 `json:"cooldownSeconds,omitempty"`
}

// Condition Accepted of a policy, and its reasons.
const (
	PolicyAccepted     = "Accepted"
	ReasonInForce      = "InForce"      // True
	ReasonContradicted = "Contradicted" // False: it contradicts itself, and is as if there were none
)

// SharingPolicyStatus says whether the policy is in force.
type SharingPolicyStatus struct {
	// ObservedGeneration is that of the spec that the rest is for.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Accepted.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SharingPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type SharingPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SharingPolicy `json:"items"`
}
