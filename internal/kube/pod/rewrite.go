package pod

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"weft.dev/weft/internal/kube"
)

// Rewrite makes a Pod that is being created, and that opts in, share GPUs: it takes nvidia.com/gpu out, puts claims, the gate and
// the label in, and says whether it changed anything. name gives the name of a ResourceClaim, another one at each call.
//
// A Pod opts in by one of the annotations floor, class, memory, profile and gang, or by its namespace, and when a container asks
// for at least one GPU. Any other Pod is left as it is. So are, in a namespace that shares, the Pods of DaemonSets and of other
// schedulers, which take whole GPUs; if they have an annotation, too, that is a fault, as is a Pod that names its node.
//
// Init containers that end before the others begin use the GPUs of the first container that asks for some. A Pod with faults is
// not changed. Rewriting what was rewritten changes nothing, unless somebody added a container that asks.
func Rewrite(p *corev1.Pod, d Defaults, name func() string) (changed bool, faults field.ErrorList) {
	managed := kube.Managed(p.Labels)
	asking, asks := asking(p)
	strange := strangers(p, managed)
	annotated := slices.ContainsFunc(optIn, func(key string) bool { _, stated := p.Annotations[key]; return stated })
	switch {
	case managed:
		faults = append(faults, gated(p)...)
	case !slices.ContainsFunc(asking, func(a ask) bool { return a.gpus > 0 }) && len(asks) == 0:
		return false, nil
	case !d.Share && !annotated:
		return false, strange
	case mirrored(p):
		return false, nil
	default:
		out, f := outside(p, annotated)
		if out && f == nil {
			return false, strange
		}
		if f != nil {
			faults = append(faults, f)
		}
	}
	r, unread := settings(p, d)
	faults = append(append(append(faults, strange...), unread...), asks...)
	if f := d.refuse(p, r.Floor); f != nil && len(unread) == 0 {
		faults = append(faults, f)
	}
	workers, f := workersOf(p, managed)
	if faults = append(faults, f...); len(faults) > 0 {
		return false, faults
	}
	return apply(p, workers, asking, name)
}

// gated wants the gate on a managed Pod that is being created: one without it is a copy of a Pod that was placed.
func gated(p *corev1.Pod) field.ErrorList {
	if hasGate(p) {
		return nil
	}
	return field.ErrorList{field.Forbidden(label(kube.LabelManaged),
		"weft writes it, with claims that belong to one Pod: remove it from a copy, with spec.resourceClaims and metadata.annotations[weft.dev/claims]")}
}

func hasGate(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == kube.Gate })
}

// mirrored says whether a Pod is the image of one that a kubelet runs by itself.
func mirrored(p *corev1.Pod) bool {
	_, is := p.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}

// outside says whether a Pod cannot share though it opted in, and what is wrong with that; nil where its user did not ask.
func outside(p *corev1.Pod, annotated bool) (bool, *field.Error) {
	spec := field.NewPath("spec")
	if p.Spec.NodeName != "" {
		return true, field.Forbidden(spec.Child("nodeName"),
			"a Pod that shares GPUs is placed by weft: name the node in spec.nodeSelector, as kubernetes.io/hostname: "+p.Spec.NodeName)
	}
	if s := p.Spec.SchedulerName; s != "" && s != corev1.DefaultSchedulerName {
		if annotated {
			return true, field.Invalid(spec.Child("schedulerName"), s,
				"Pods share GPUs under "+corev1.DefaultSchedulerName+" only: leave it out, or remove the annotations "+domain)
		}
		return true, nil
	}
	for i := range p.OwnerReferences {
		o := &p.OwnerReferences[i]
		if o.Kind != "DaemonSet" || o.Controller == nil || !*o.Controller {
			continue
		}
		for _, key := range optIn {
			if _, stated := p.Annotations[key]; stated {
				return true, field.Forbidden(annotation(key), "the Pods of a DaemonSet take whole GPUs: remove it from spec.template of DaemonSet "+o.Name)
			}
		}
		return true, nil
	}
	return false, nil
}

// refuse is what is wrong with a floor in the namespace.
func (d Defaults) refuse(p *corev1.Pod, floor float64) *field.Error {
	text, stated := p.Annotations[kube.AnnotationFloor]
	at := annotation(kube.AnnotationFloor)
	switch {
	case !stated:
	case d.MaxFloor > 0 && floor > d.MaxFloor:
		return field.Invalid(at, text, fmt.Sprintf("above %g, the highest of this namespace by SharingPolicy default", d.MaxFloor))
	case floor < d.MinFloor:
		return field.Invalid(at, text, fmt.Sprintf("below %g, the lowest of this namespace by SharingPolicy default", d.MinFloor))
	}
	return nil
}

// apply rewrites a Pod that has no faults. workers are those that it has already.
func apply(p *corev1.Pod, workers []Worker, asking []ask, name func() string) (bool, field.ErrorList) {
	first, old := firstOwner(p, workers, asking), len(workers)
	claims := make([]string, len(asking)) // in spec.resourceClaims, of each that asks for GPUs
	for n, a := range asking {
		if a.gpus == 0 {
			continue
		}
		owner := a.container.Name
		if a.serial {
			owner = first
		}
		i := slices.IndexFunc(workers, func(w Worker) bool { return w.Container == owner })
		if i < 0 {
			i = len(workers)
			workers = append(workers, Worker{Claim: name(), Name: entry(owner), Container: owner})
		}
		workers[i].GPUs = max(workers[i].GPUs, a.gpus)
		claims[n] = workers[i].Name
	}
	for _, w := range workers[old:] {
		if i := slices.IndexFunc(p.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == w.Name }); i >= 0 {
			at := field.NewPath("spec", "resourceClaims").Index(i).Child("name")
			return false, field.ErrorList{field.Invalid(at, w.Name, "weft needs this name for a claim: choose another one")}
		}
	}
	for n, a := range asking {
		a.take(claims[n])
	}
	for _, w := range workers[old:] {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: w.Name, ResourceClaimName: &w.Claim})
	}
	return mark(p, workers) || len(asking) > 0, nil
}

// firstOwner is the container whose GPUs the serial init containers use: the first regular one that has GPUs or asks for some,
// else the first of themselves.
func firstOwner(p *corev1.Pod, workers []Worker, asking []ask) string {
	has := func(c *corev1.Container) bool {
		return slices.ContainsFunc(workers, func(w Worker) bool { return w.Container == c.Name }) ||
			slices.ContainsFunc(asking, func(a ask) bool { return a.container == c && a.gpus > 0 })
	}
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; has(c) {
			return c.Name
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; serial(c) && has(c) {
			return c.Name
		}
	}
	return ""
}

// mark puts gate, label and annotation on a Pod, and says whether any of them was not there.
func mark(p *corev1.Pod, workers []Worker) bool {
	changed := false
	if !hasGate(p) {
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kube.Gate})
		changed = true
	}
	if p.Labels[kube.LabelManaged] != "true" {
		p.Labels = with(p.Labels, kube.LabelManaged, "true")
		changed = true
	}
	if text := Claims(workers); p.Annotations[kube.AnnotationClaims] != text {
		p.Annotations = with(p.Annotations, kube.AnnotationClaims, text)
		changed = true
	}
	return changed
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// Claims is what the annotation weft.dev/claims says of workers: "weft-train=2,weft-eval=1", the names in spec.resourceClaims with
// numbers of GPUs.
func Claims(workers []Worker) string {
	list := make([]string, len(workers))
	for i, w := range workers {
		list[i] = fmt.Sprintf("%s=%d", w.Name, w.GPUs)
	}
	return strings.Join(list, ",")
}
