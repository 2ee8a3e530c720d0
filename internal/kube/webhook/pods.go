package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/pod"
	"weft.dev/weft/internal/spelling"
)

// pods rewrites Pods.
type pods struct {
	source Source
	share  bool // their namespaces share
}

func (h pods) handle(ctx context.Context, req admission.Request) admission.Response {
	var p corev1.Pod
	if err := json.Unmarshal(req.Object.Raw, &p); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the Pod: %w", err))
	}
	policy, err := h.source.Policy(ctx)
	if err != nil {
		return broken(fmt.Errorf("weft cannot read SharingPolicy default, try again: %w", err))
	}
	known, err := h.source.Profiles(ctx, req.Namespace)
	if err != nil {
		return broken(fmt.Errorf("weft cannot read the WorkloadProfiles of %s, try again: %w", req.Namespace, err))
	}
	patch, faults, err := mutate(&p, pod.In(policy, req.Namespace, h.share), known, newClaim)
	switch {
	case err != nil:
		return broken(err)
	case len(faults) > 0:
		name := p.Name
		if name == "" {
			name = p.GenerateName
		}
		return refuse(schema.GroupKind{Kind: "Pod"}, name, faults)
	}
	return admission.Patched("", patch...)
}

// mutate is the patch that makes a Pod share; none where nothing changes. It holds only what weft changes, and leaves alone
// fields that this version of the API does not know. profiles are the names of the profiles of the namespace.
func mutate(p *corev1.Pod, d pod.Defaults, profiles []string, name func() string) ([]jsonpatch.Operation, field.ErrorList, error) {
	before, err := json.Marshal(p)
	if err != nil {
		return nil, nil, fmt.Errorf("write the Pod: %w", err)
	}
	changed, faults := pod.Rewrite(p, d, name)
	if changed {
		if f := checkReference(p.Annotations, profiles); f != nil {
			faults = append(faults, f)
		}
	}
	if !changed || len(faults) > 0 {
		return nil, faults, nil
	}
	after, err := json.Marshal(p)
	if err != nil {
		return nil, nil, fmt.Errorf("write the Pod: %w", err)
	}
	patch, err := jsonpatch.CreatePatch(before, after)
	if err != nil {
		return nil, nil, fmt.Errorf("compare the Pod with what it was: %w", err)
	}
	return patch, nil, nil
}

// checkReference wants the profile that a Pod names to be one of its namespace, or a configuration of the catalogue.
func checkReference(annotations map[string]string, profiles []string) *field.Error {
	name, stated := annotations[kube.AnnotationProfile]
	if !stated {
		return nil
	}
	names := append(configurations(), profiles...)
	for _, n := range names {
		if n == name {
			return nil
		}
	}
	f := field.NotFound(field.NewPath("metadata", "annotations").Key(kube.AnnotationProfile), name)
	f.Detail = "no WorkloadProfile of this namespace, and not in weft catalogue"
	if near := spelling.Nearest(name, names); near != "" {
		f.Detail = "write " + near
	}
	return f
}

// configurations are the names of the catalogue, model:batch or the model alone where it has no batch size.
func configurations() []string {
	var names []string
	for _, e := range catalogue.All() {
		names = append(names, configuration(e.Model, e.Batch))
	}
	return names
}

func configuration(model, batch string) string {
	if batch == "" {
		return model
	}
	return model + ":" + batch
}
