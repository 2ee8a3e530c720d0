// Package webhook answers the API server about objects that users write: Pods that share GPUs are rewritten, and Pods, policies
// and profiles that cannot be what their author meant are refused with the field's path.
//
// Which Pods it is asked about is said in the webhook configurations of the chart: those that opt in and no others, so that
// nobody else waits for it. Their configurations send Pods of namespaces that share to PathShared and others to PathAnnotated,
// which spares looking the namespace up.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/kube/pod"
)

// Paths of the handlers.
const (
	PathShared    = "/pods/shared"    // Pods of namespaces whose label makes them share
	PathAnnotated = "/pods/annotated" // Pods of other namespaces, with annotations of weft
	PathPolicies  = "/policies"
	PathProfiles  = "/profiles"
)

// Source is what answers depend on besides the object itself. Implementations answer from memory.
type Source interface {
	// Policy is the policy of the cluster; nil where there is none.
	Policy(ctx context.Context) (*v1alpha1.SharingPolicySpec, error)

	// Profiles are the names of the profiles of a namespace.
	Profiles(ctx context.Context, namespace string) ([]string, error)
}

// Handler answers at all paths of this package.
func Handler(source Source) http.Handler {
	mux := http.NewServeMux()
	for path, h := range map[string]admission.HandlerFunc{
		PathShared:    pods{source, true}.handle,
		PathAnnotated: pods{source, false}.handle,
		PathPolicies:  policies,
		PathProfiles:  profiles,
	} {
		mux.Handle("POST "+path, answerer(h))
	}
	return mux
}

// largest is the longest request that is read, in bytes: the API server takes objects of 3 MiB, and an update sends two.
const largest = 8 << 20

// answerer is a decision as a handler of HTTP.
func answerer(decide admission.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, largest)).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "this is no AdmissionReview with a request", http.StatusBadRequest)
			return
		}
		request := admission.Request{AdmissionRequest: *review.Request}
		answer := decide(r.Context(), request)
		if err := answer.Complete(request); err != nil {
			http.Error(w, fmt.Sprintf("write the patch: %v", err), http.StatusInternalServerError)
			return
		}
		text, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: &answer.AdmissionResponse})
		if err != nil {
			http.Error(w, fmt.Sprintf("write the answer: %v", err), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // who does not hear it asks again
	}
}

// newClaim names a ResourceClaim. Ten letters of an alphabet of 27 are unique in any namespace that a cluster can hold, and a
// controller that finds the name taken by another Pod says so.
func newClaim() string { return pod.ClaimPrefix + rand.String(claimLetters) }

const claimLetters = 10

// refuse answers that an object is invalid, the way the API server does for its own objects.
func refuse(kind schema.GroupKind, name string, faults field.ErrorList) admission.Response {
	status := apierrors.NewInvalid(kind, name, faults).Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: false, Result: &status}}
}

// broken answers that this program could not decide.
func broken(err error) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: false, Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: err.Error(),
	}}}
}
