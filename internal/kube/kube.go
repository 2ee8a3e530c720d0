// Package kube is the vocabulary that weft's parts in a Kubernetes cluster share: the names of its driver, device classes, gate,
// labels and annotations. Below it are the parts: pod reads and rewrites what users submit, claim is the durable record of a
// placement, queue turns a cluster into a question for internal/dispatch, controller asks and applies, adjust corrects that by what
// agents observe, learned keeps what that taught, driver serves the GPUs of a node to the kubelet.
package kube

// Names in the API.
const (
	// Driver is the DRA driver of all GPUs that weft serves, and the domain of their attributes and capacities.
	Driver = "gpu.weft.dev"

	// NativeClass is the device class behind nvidia.com/gpu: a Pod that asks for that gets a whole GPU.
	NativeClass = "gpu.weft.dev"

	// ShareClass is the device class of weft's own claims.
	ShareClass = "share.weft.dev"

	// ExtendedResource is what native Pods ask for, and what opted-in Pods asked for before they were rewritten.
	ExtendedResource = "nvidia.com/gpu"

	// Gate keeps an opted-in Pod from the scheduler until it is placed.
	Gate = "weft.dev/placement"

	// Controller is the name of what is of the controller: Deployment, account, roles, lease.
	Controller = "weft-controller"

	// Learned is the ConfigMap, in weft's namespace, of what was learned of kinds of jobs.
	Learned = "weft-learned"
)

// Labels.
const (
	LabelShare   = "weft.dev/share"   // of a namespace: "enabled" opts its Pods in
	LabelManaged = "weft.dev/managed" // of a Pod that was rewritten: "true"
	LabelServe   = "weft.dev/serve"   // of a node: "false" keeps weft off it
)

// Managed says by its labels whether a Pod was rewritten, or a claim is one of weft's.
func Managed(labels map[string]string) bool { return labels[LabelManaged] == "true" }

// Annotations that users write on Pods.
const (
	AnnotationFloor      = "weft.dev/floor"      // least share of its speed alone, in (0, 1]
	AnnotationClass      = "weft.dev/class"      // guaranteed, burstable, besteffort
	AnnotationMemory     = "weft.dev/memory"     // peak of each GPU, a quantity of bytes
	AnnotationProfile    = "weft.dev/profile"    // WorkloadProfile of the namespace, or a name of the catalogue
	AnnotationGang       = "weft.dev/gang"       // number of Pods that start together
	AnnotationMigratable = "weft.dev/migratable" // "true": it may be evicted, and resumes from its checkpoint
)

// Annotations that weft writes on Pods.
const (
	AnnotationClaims   = "weft.dev/claims"   // its claims by container, as pod.Claims writes them
	AnnotationGPU      = "weft.dev/gpu"      // where it was placed: "node-3/gpu1", several separated by commas
	AnnotationMoved    = "weft.dev/moved"    // when the Pod was moved whose place it took, in RFC 3339
	AnnotationReminded = "weft.dev/reminded" // how often its kubelet was reminded of it
)

// Attributes of a device, in the driver's domain.
const (
	AttributeUUID    = "uuid"          // string, "GPU-…"
	AttributeModel   = "model"         // string, the driver's product name
	AttributeIndex   = "index"         // int, on its node
	AttributeVersion = "driverVersion" // semver
)

// Capacities of a device, in the driver's domain. A claim that names none takes the whole.
const (
	CapacityMemory = "memory" // bytes that residents may use
	CapacityShare  = "share"  // WholeShare is the whole GPU: it bounds the number of residents
	WholeShare     = 1000
)

// Conditions of Pods and nodes.
const (
	ConditionPlaced    = "weft.dev/Placed"
	ConditionFloorHeld = "weft.dev/FloorHeld"
	ConditionServing   = "weft.dev/Serving"
)

// TaintUnhealthy is on a device that has a fault; no shared claim tolerates it.
const TaintUnhealthy = "weft.dev/unhealthy"
