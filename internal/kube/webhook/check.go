package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/spelling"
	"weft.dev/weft/internal/unit"
)

// policies refuses policies that contradict themselves.
func policies(_ context.Context, req admission.Request) admission.Response {
	var p v1alpha1.SharingPolicy
	return check(req, &p, v1alpha1.Kind("SharingPolicy").Kind, func() field.ErrorList { return CheckPolicy(&p.Spec) })
}

// profiles refuses profiles that say nothing usable.
func profiles(_ context.Context, req admission.Request) admission.Response {
	var p v1alpha1.WorkloadProfile
	return check(req, &p, v1alpha1.Kind("WorkloadProfile").Kind, func() field.ErrorList { return CheckProfile(&p.Spec) })
}

// check reads an object and refuses it where it has faults. Objects that go are not held up.
func check(req admission.Request, object any, kind string, faults func() field.ErrorList) admission.Response {
	if req.Operation == admissionv1.Delete {
		return admission.Allowed("")
	}
	if err := json.Unmarshal(req.Object.Raw, object); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the %s: %w", kind, err))
	}
	if list := faults(); len(list) > 0 {
		return refuse(v1alpha1.Kind(kind).GroupKind(), req.Name, list)
	}
	return admission.Allowed("")
}

// CheckPolicy is where a policy contradicts itself: what a namespace states must fit what it takes over from the defaults. A floor
// that it takes over is moved into its own bounds, and is no contradiction. The API server checks each field before.
func CheckPolicy(s *v1alpha1.SharingPolicySpec) field.ErrorList {
	spec := field.NewPath("spec")
	faults := checkTerms(spec.Child("defaults"), s.Defaults, s.Defaults)
	for i := range s.Namespaces {
		n := &s.Namespaces[i]
		faults = append(faults, checkTerms(spec.Child("namespaces").Key(n.Name), n.Terms, s.In(n.Name))...)
	}
	return faults
}

// checkTerms compares terms in force with each other. stated is what stands at the path.
func checkTerms(at *field.Path, stated, t v1alpha1.Terms) field.ErrorList {
	low, high, floor := t.MinFloor.Float(0), t.MaxFloor.Float(1), t.Floor.Float(0)
	whence := func(f v1alpha1.Fraction) string {
		if f == "" {
			return " of spec.defaults"
		}
		return ""
	}
	above := fmt.Sprintf("above maxFloor %s%s", t.MaxFloor, whence(stated.MaxFloor))
	switch {
	case low > high && stated.MinFloor == "":
		return field.ErrorList{field.Invalid(at.Child("maxFloor"), string(t.MaxFloor), fmt.Sprintf("below minFloor %s of spec.defaults", t.MinFloor))}
	case low > high:
		return field.ErrorList{field.Invalid(at.Child("minFloor"), string(t.MinFloor), above)}
	case stated.Floor == "":
	case floor > high:
		return field.ErrorList{field.Invalid(at.Child("floor"), string(t.Floor), above)}
	case floor < low:
		return field.ErrorList{field.Invalid(at.Child("floor"), string(t.Floor), fmt.Sprintf("below minFloor %s%s", t.MinFloor, whence(stated.MinFloor)))}
	}
	return nil
}

// CheckProfile is what is wrong with a profile besides its single fields: a name that is not in the catalogue although nothing
// else says what the job needs, a shape that nobody measured, memory that cannot be.
func CheckProfile(s *v1alpha1.WorkloadProfileSpec) field.ErrorList {
	spec := field.NewPath("spec")
	var faults field.ErrorList
	if s.Model != "" && s.Memory == nil {
		faults = append(faults, checkModel(spec, s.Model, s.Batch)...)
	}
	if m := s.Memory; m != nil {
		faults = append(faults, checkMemory(spec.Child("memory"), m)...)
	}
	return faults
}

// checkModel wants a configuration of the catalogue.
func checkModel(spec *field.Path, model, batch string) field.ErrorList {
	var models, batches []string
	for _, e := range catalogue.All() {
		if e.Model == model && e.Batch == batch {
			return nil
		}
		models = append(models, e.Model)
		if e.Model == model {
			batches = append(batches, e.Batch)
		}
	}
	at, name, near := spec.Child("model"), model, spelling.Nearest(model, models)
	if len(batches) > 0 {
		at, name, near = spec.Child("batch"), batch, batches[0]
	}
	f := field.NotFound(at, name)
	f.Detail = "not in weft catalogue: say what it needs in spec.memory, or leave spec empty to have it learned"
	if near != "" {
		f.Detail = "not in weft catalogue: write " + near + ", or say what it needs in spec.memory"
	}
	return field.ErrorList{f}
}

// checkMemory wants amounts that a job on a GPU can hold.
func checkMemory(at *field.Path, m *v1alpha1.ProfileMemory) field.ErrorList {
	var faults field.ErrorList
	if peak := m.Peak; peak.Sign() <= 0 || peak.CmpInt64(int64(unit.TiB)) > 0 {
		faults = append(faults, field.Invalid(at.Child("peak"), peak.String(),
			"outside (0, 1Ti]: write what the program holds on one GPU at most, such as 8Gi"))
	}
	if p := m.Persistent; p != nil && (p.Sign() <= 0 || p.Cmp(m.Peak) > 0) {
		faults = append(faults, field.Invalid(at.Child("persistent"), p.String(), "outside (0, peak]: the peak includes it"))
	}
	if _, known := profile.NamedShape(m.Shape); !known {
		faults = append(faults, field.Invalid(at.Child("shape"), m.Shape,
			"nobody measured such a shape: see weft catalogue, or leave it out for a flat one"))
	}
	return faults
}
