package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkloadProfile says what a kind of job needs of a GPU when it runs alone. Pods name it in their annotation weft.dev/profile.
// An empty spec asks weft to learn it from the first of them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wp
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.model`
// +kubebuilder:printcolumn:name="Persistent",type=string,JSONPath=`.status.memory.persistent`
// +kubebuilder:printcolumn:name="Peak",type=string,JSONPath=`.status.memory.peak`
// +kubebuilder:printcolumn:name="Rate",type=string,JSONPath=`.status.rates[0].stepsPerSecond`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.status.source`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name: at most 63 characters"
type WorkloadProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec WorkloadProfileSpec `json:"spec,omitempty"`
	// +optional
	Status WorkloadProfileStatus `json:"status,omitempty"`
}

// WorkloadProfileSpec is what its author knows. What is stated here wins over what weft learns.
//
// +kubebuilder:validation:XValidation:rule="!has(self.batch) || has(self.model)",fieldPath=".batch",message="a batch size belongs to a model: write spec.model as well"
type WorkloadProfileSpec struct {
	// Model is the name of a training configuration, as in weft's catalogue: "resnet50".
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=100
	Model string `json:"model,omitempty"`

	// Batch is the model's batch size as the catalogue writes it: "64".
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=20
	Batch string `json:"batch,omitempty"`

	Figures `json:",inline"`
}

// Figures are measured of one worker that has a GPU to itself.
type Figures struct {
	// Memory of the GPU.
	//
	// +optional
	Memory *ProfileMemory `json:"memory,omitempty"`

	// UtilisationPercent is the share of time in which a kernel runs, in percent.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	UtilisationPercent *int32 `json:"utilisationPercent,omitempty"`

	// Rates are speeds alone, by model of the GPU.
	//
	// +optional
	// +listType=map
	// +listMapKey=gpuModel
	// +kubebuilder:validation:MaxItems=32
	Rates []Rate `json:"rates,omitempty"`
}

// ProfileMemory is the memory of a worker over an iteration.
type ProfileMemory struct {
	// Persistent is always held: weights, optimizer state, context. Unknown, it counts as Peak.
	//
	// +optional
	Persistent *resource.Quantity `json:"persistent,omitempty"`

	// Peak is the most that is ever held, Persistent included.
	Peak resource.Quantity `json:"peak"`

	// Shape names what is held between Persistent and Peak over an iteration, as in weft's catalogue. Without one it is flat.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=40
	Shape string `json:"shape,omitempty"`
}

// Rate is a speed alone on one model of GPU.
type Rate struct {
	// GPUModel is a short name in lower case: "a100".
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')",message="write the short name of the GPU model in lower case, such as a100-40gb"
	// +kubebuilder:validation:MaxLength=40
	GPUModel string `json:"gpuModel"`

	// StepsPerSecond is the number of iterations in a second, above 0: "12.5".
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]+([.][0-9]+)?$') && double(self) > 0.0",message="a number above 0, such as 12.5"
	StepsPerSecond Fraction `json:"stepsPerSecond"`
}

// Sources of figures.
const (
	SourceGiven   = "Given"   // the spec, or the catalogue through it
	SourceLearned = "Learned" // what was observed of jobs that ran
)

// Condition Ready of a profile, and its reasons.
const (
	ProfileReady     = "Ready"
	ReasonLearning   = "Learning"   // False: no job has run long enough yet; its jobs share with nobody
	ReasonMeasured   = "Measured"   // True: learned
	ReasonGiven      = "Given"      // True: stated
	ReasonNotInForce = "NotInForce" // False: what is stated cannot be used; the message says why
)

// WorkloadProfileStatus is what is in force.
type WorkloadProfileStatus struct {
	Figures `json:",inline"`

	// Source is where the figures are from.
	//
	// +optional
	// +kubebuilder:validation:Enum=Given;Learned
	Source string `json:"source,omitempty"`

	// Iterations that were observed.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Iterations int64 `json:"iterations,omitempty"`

	// ObservedGeneration is that of the spec that the rest is for.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WorkloadProfileList is a list of profiles.
//
// +kubebuilder:object:root=true
type WorkloadProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WorkloadProfile `json:"items"`
}
