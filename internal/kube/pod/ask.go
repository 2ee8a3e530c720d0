package pod

import (
	"fmt"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"weft.dev/weft/internal/kube"
)

// ask is a container that names nvidia.com/gpu.
type ask struct {
	container *corev1.Container
	gpus      int  // may be 0: naming none is asking for none
	regular   bool // it is no init container
	serial    bool // it is an init container that ends before the next begins
}

// asking are the containers of a Pod that name nvidia.com/gpu, regular ones first, with the faults of what they write.
func asking(p *corev1.Pod) ([]ask, field.ErrorList) {
	var list []ask
	var faults field.ErrorList
	look := func(containers []corev1.Container, name string) {
		for i := range containers {
			c := &containers[i]
			a := ask{container: c, regular: name == "containers"}
			a.serial = !a.regular && serial(c)
			gpus, stated, fault := count(c, field.NewPath("spec", name).Index(i).Child("resources"))
			if a.gpus = gpus; fault != nil {
				faults = append(faults, fault)
			}
			if stated {
				list = append(list, a)
			}
		}
	}
	look(p.Spec.Containers, "containers")
	look(p.Spec.InitContainers, "initContainers")
	return list, faults
}

// serial says whether an init container ends before the next begins; others run beside the rest of the Pod.
func serial(c *corev1.Container) bool {
	return c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways
}

// count is how many GPUs a container asks for, and whether it names them at all.
func count(c *corev1.Container, at *field.Path) (gpus int, stated bool, fault *field.Error) {
	limit, limited := c.Resources.Limits[kube.ExtendedResource]
	request, requested := c.Resources.Requests[kube.ExtendedResource]
	if !limited && !requested {
		return 0, false, nil
	}
	limits := at.Child("limits").Key(kube.ExtendedResource)
	switch {
	case !limited:
		return 0, true, field.Required(limits, "a GPU is asked for in limits: write it there")
	case requested && limit.Cmp(request) != 0:
		return 0, true, field.Invalid(at.Child("requests").Key(kube.ExtendedResource), request.String(), "not the same as in limits: leave it out here")
	case limit.Sign() < 0 || limit.Cmp(*resource.NewQuantity(limit.Value(), resource.DecimalSI)) != 0:
		return 0, true, field.Invalid(limits, limit.String(), "GPUs are whole: weft shares them by what the Pod's floor leaves, so write 1")
	case limit.CmpInt64(mostGPUs) > 0:
		return 0, true, field.Invalid(limits, limit.String(), fmt.Sprintf("a container can have %d at most", mostGPUs))
	}
	return int(limit.Value()), true, nil
}

// take replaces what a container asks for by a claim of the Pod, "" for none.
func (a ask) take(claim string) {
	r := &a.container.Resources
	delete(r.Limits, kube.ExtendedResource)
	delete(r.Requests, kube.ExtendedResource)
	if len(r.Limits) == 0 {
		r.Limits = nil
	}
	if len(r.Requests) == 0 {
		r.Requests = nil
	}
	if claim != "" && !slices.ContainsFunc(r.Claims, func(c corev1.ResourceClaim) bool { return c.Name == claim }) {
		r.Claims = append(r.Claims, corev1.ResourceClaim{Name: claim})
	}
}

// ClaimPrefix begins the names of weft's claims, as objects and in spec.resourceClaims.
const ClaimPrefix = "weft-"

// entry is the name in spec.resourceClaims of a container's claim: weft- and the container's, shortened with a hash where that is
// too long for a label.
func entry(container string) string {
	name := ClaimPrefix + container
	if len(name) <= validation.DNS1123LabelMaxLength {
		return name
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(container))
	const hash = len("-00000000")
	return fmt.Sprintf("%s-%08x", name[:validation.DNS1123LabelMaxLength-hash], h.Sum32())
}

// WholeGPUs is how many GPUs a Pod asks for by nvidia.com/gpu.
func WholeGPUs(p *corev1.Pod) int {
	n, most := int64(0), int64(0)
	for i := range p.Spec.Containers {
		asks := p.Spec.Containers[i].Resources.Limits[kube.ExtendedResource]
		n += max(0, asks.Value())
	}
	for i := range p.Spec.InitContainers {
		asks := p.Spec.InitContainers[i].Resources.Limits[kube.ExtendedResource]
		most = max(most, asks.Value())
	}
	return int(min(max(n, most), 1<<10))
}
