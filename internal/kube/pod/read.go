package pod

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"weft.dev/weft/internal/kube"
)

// Read is what a Pod asks that Rewrite has rewritten, nil for one that is not weft's. Its floor is at most the highest and at least
// the lowest of the namespace, as those are now. Somebody may have edited the Pod since it was created: what does not fit
// together is a fault, and there is no request.
func Read(p *corev1.Pod, d Defaults) (*Request, field.ErrorList) {
	if p.Labels[kube.LabelManaged] != "true" {
		return nil, nil
	}
	r, faults := settings(p, d)
	workers, f := workersOf(p, true)
	faults = append(faults, f...)
	asked, _ := asking(p)
	for _, a := range asked {
		if a.gpus > 0 {
			faults = append(faults, field.Forbidden(a.path(p), "it has a claim of weft as well: keep one of the two"))
		}
	}
	if len(faults) == 0 && len(workers) == 0 {
		faults = append(faults, field.Required(field.NewPath("spec", "resourceClaims"),
			"a Pod that shares has a claim of weft: create it anew without the label weft.dev/managed"))
	}
	if len(faults) > 0 {
		return nil, faults
	}
	r.Floor, r.Workers = d.clamp(r.Floor), workers
	return &r, nil
}

// path is the field that asks.
func (a ask) path(p *corev1.Pod) *field.Path {
	name, list := "initContainers", p.Spec.InitContainers
	if a.regular {
		name, list = "containers", p.Spec.Containers
	}
	i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == a.container.Name })
	return field.NewPath("spec", name).Index(i).Child("resources", "limits").Key(kube.ExtendedResource)
}

// workersOf are the workers that a Pod was rewritten to have, in the order in which they were written; none for a Pod that is not
// managed. Claims of weft that nothing accounts for are faults.
func workersOf(p *corev1.Pod, managed bool) ([]Worker, field.ErrorList) {
	var counts []Worker
	var faults field.ErrorList
	if managed {
		counts, faults = readClaims(p.Annotations[kube.AnnotationClaims])
	}
	var workers []Worker
	for _, w := range counts {
		i := slices.IndexFunc(p.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == w.Name })
		if i < 0 || p.Spec.ResourceClaims[i].ResourceClaimName == nil {
			faults = append(faults, edited(w.Name, "spec.resourceClaims has no such claim"))
			continue
		}
		w.Claim = *p.Spec.ResourceClaims[i].ResourceClaimName
		if w.Container = user(p, w.Name); w.Container == "" {
			faults = append(faults, edited(w.Name, "no container uses it"))
			continue
		}
		workers = append(workers, w)
	}
	for i, c := range p.Spec.ResourceClaims {
		ours := strings.HasPrefix(c.Name, ClaimPrefix) && c.ResourceClaimName != nil && strings.HasPrefix(*c.ResourceClaimName, ClaimPrefix)
		if ours && !slices.ContainsFunc(counts, func(w Worker) bool { return w.Name == c.Name }) {
			at := field.NewPath("spec", "resourceClaims").Index(i)
			faults = append(faults, field.Forbidden(at, "claims that begin with "+ClaimPrefix+
				" are weft's: write nvidia.com/gpu in the container's limits, or a claim of your own, not both"))
		}
	}
	return workers, faults
}

// user is the first container that uses a claim of the Pod, regular ones first.
func user(p *corev1.Pod, claim string) string {
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if slices.ContainsFunc(list[i].Resources.Claims, func(c corev1.ResourceClaim) bool { return c.Name == claim }) {
				return list[i].Name
			}
		}
	}
	return ""
}

// readClaims reads what Claims wrote. Claim and Container are left empty.
func readClaims(text string) ([]Worker, field.ErrorList) {
	var workers []Worker
	var faults field.ErrorList
	for part := range strings.SplitSeq(text, ",") {
		name, number, found := strings.Cut(part, "=")
		n, err := strconv.Atoi(number)
		repeated := slices.ContainsFunc(workers, func(w Worker) bool { return w.Name == name })
		if !found || err != nil || n < 1 || n > mostGPUs || repeated {
			faults = append(faults, edited(part, fmt.Sprintf("not a claim with its number of GPUs, 1 to %d", mostGPUs)))
			continue
		}
		workers = append(workers, Worker{Name: name, GPUs: n})
	}
	return workers, faults
}

// edited is a fault of the annotation that weft wrote.
func edited(value, what string) *field.Error {
	return field.Invalid(annotation(kube.AnnotationClaims), value, what+": weft writes it; create the Pod anew")
}
