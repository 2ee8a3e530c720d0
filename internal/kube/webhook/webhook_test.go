package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"weft.dev/weft/api/v1alpha1"
)

// fixed is a Source that always says the same.
type fixed struct {
	policy   *v1alpha1.SharingPolicySpec
	profiles []string
	err      error
}

func (f fixed) Policy(context.Context) (*v1alpha1.SharingPolicySpec, error) { return f.policy, f.err }
func (f fixed) Profiles(context.Context, string) ([]string, error)          { return f.profiles, f.err }

// ask sends an object to a handler, as the API server does.
func ask(t *testing.T, h http.Handler, path, object string) *admissionv1.AdmissionResponse {
	t.Helper()
	review := admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "u1", Operation: admissionv1.Create, Namespace: "ml", Name: "p", Object: runtime.RawExtension{Raw: []byte(object)}}}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(w, r)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Response == nil || answer.Response.UID != "u1" {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return answer.Response
}

const newer = `{"metadata":{"generateName":"bert-","annotations":{"weft.dev/floor":"%s"},"fromTheFuture":{"a":1}},"spec":{"newField":[1,2],
"containers":[{"name":"t","image":"x","resources":{"limits":{"nvidia.com/gpu":"1","cpu":"1500m"},"newer":true},"later":{"b":2}}]}}`

// TestPatchKeepsWhatItDoesNotKnow sends a Pod with fields of a later version of the API.
func TestPatchKeepsWhatItDoesNotKnow(t *testing.T) {
	object := fmt.Sprintf(newer, "0.9")
	answer := ask(t, Handler(fixed{}), PathAnnotated, object)
	if !answer.Allowed || answer.PatchType == nil || *answer.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Fatalf("%+v", answer)
	}
	patch, err := jsonpatch.DecodePatch(answer.Patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply([]byte(object))
	if err != nil {
		t.Fatalf("%v: %s", err, answer.Patch)
	}
	var got, was map[string]any
	if err := errors.Join(json.Unmarshal(after, &got), json.Unmarshal([]byte(object), &was)); err != nil {
		t.Fatal(err)
	}
	spec := got["spec"].(map[string]any)
	claim := spec["resourceClaims"].([]any)[0].(map[string]any)["resourceClaimName"].(string)
	if len(claim) != len("weft-")+10 || !strings.HasPrefix(claim, "weft-") {
		t.Errorf("claim %q", claim)
	}
	// Without what weft added, and with what it took, it is what it was.
	delete(spec, "resourceClaims")
	delete(spec, "schedulingGates")
	metadata := got["metadata"].(map[string]any)
	delete(metadata, "labels")
	delete(metadata["annotations"].(map[string]any), "weft.dev/claims")
	resources := spec["containers"].([]any)[0].(map[string]any)["resources"].(map[string]any)
	delete(resources, "claims")
	resources["limits"].(map[string]any)["nvidia.com/gpu"] = "1"
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(was)
	if !bytes.Equal(a, b) {
		t.Errorf("%s\nis not\n%s", a, b)
	}
}

func TestPodsAnswers(t *testing.T) {
	plain := `{"spec":{"containers":[{"name":"t","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}`
	profile := `{"metadata":{"annotations":{"weft.dev/profile":"%s"}},"spec":{"containers":[{"name":"t","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}`
	policy := &v1alpha1.SharingPolicySpec{Namespaces: []v1alpha1.NamespaceTerms{{Name: "ml", Terms: v1alpha1.Terms{MaxFloor: "0.8"}}}}
	for _, c := range []struct {
		name, path, object string
		source             fixed
		patched            bool
		refusal            string
		code               int32
	}{
		{"the path makes it share", PathShared, plain, fixed{}, true, "", 0},
		{"or not", PathAnnotated, plain, fixed{}, false, "", 0},
		{"faults", PathAnnotated, fmt.Sprintf(newer, "90%"), fixed{}, false, `Pod "bert-" is invalid: metadata.annotations[weft.dev/floor]: Invalid value: "90%": write 0.9`, 422},
		{"the policy of the namespace", PathAnnotated, fmt.Sprintf(newer, "0.9"), fixed{policy: policy}, false, `above 0.8, the highest of this namespace`, 422},
		{"a profile", PathAnnotated, fmt.Sprintf(profile, "bert-ft"), fixed{profiles: []string{"bert-ft"}}, true, "", 0},
		{"a configuration of the catalogue", PathAnnotated, fmt.Sprintf(profile, "ResNet-18:16"), fixed{}, true, "", 0},
		{"a misspelt profile", PathAnnotated, fmt.Sprintf(profile, "brt-ft"), fixed{profiles: []string{"bert-ft"}}, false, `metadata.annotations[weft.dev/profile]: Not found: "brt-ft": write bert-ft`, 422},
		{"no such profile", PathAnnotated, fmt.Sprintf(profile, "zzzzzzzz"), fixed{}, false, `Not found: "zzzzzzzz": no WorkloadProfile of this namespace, and not in weft catalogue`, 422},
		{"nothing can be read", PathShared, plain, fixed{err: errors.New("cache is cold")}, false, "weft cannot read SharingPolicy default, try again: cache is cold", 500},
		{"no Pod", PathShared, `[]`, fixed{}, false, "read the Pod", 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := ask(t, Handler(c.source), c.path, c.object)
			if answer.Allowed != (c.refusal == "") || (len(answer.Patch) > 0) != c.patched {
				t.Errorf("%+v", answer)
			}
			if c.refusal != "" && (!strings.Contains(answer.Result.Message, c.refusal) || answer.Result.Code != c.code) {
				t.Errorf("%d %s", answer.Result.Code, answer.Result.Message)
			}
		})
	}
}

func TestPoliciesThatContradictThemselves(t *testing.T) {
	for _, c := range []struct{ spec, refusal string }{
		{`{"defaults":{"floor":"0.9"},"namespaces":[{"name":"ml","maxFloor":"0.95"}]}`, ""},
		{`{"defaults":{"maxFloor":"0.9"},"namespaces":[{"name":"ml","floor":"0.95"}]}`, `spec.namespaces[ml].floor: Invalid value: "0.95": above maxFloor 0.9 of spec.defaults`},
		{`{"defaults":{"floor":"0.95"},"namespaces":[{"name":"ml","maxFloor":"0.9"}]}`, ""},
		{`{"defaults":{"minFloor":"0.9"},"namespaces":[{"name":"ml","maxFloor":"0.5"}]}`, `spec.namespaces[ml].maxFloor: Invalid value: "0.5": below minFloor 0.9 of spec.defaults`},
		{`{"defaults":{"floor":"0.3","minFloor":"0.5"}}`, `spec.defaults.floor: Invalid value: "0.3": below minFloor 0.5`},
	} {
		answer := ask(t, Handler(fixed{}), PathPolicies, `{"metadata":{"name":"default"},"spec":`+c.spec+`}`)
		if answer.Allowed != (c.refusal == "") {
			t.Errorf("%s: %+v", c.spec, answer)
		}
		if c.refusal != "" && !strings.Contains(answer.Result.Message, c.refusal) {
			t.Errorf("%s: %s", c.spec, answer.Result.Message)
		}
	}
}

func TestProfilesThatCannotBe(t *testing.T) {
	for _, c := range []struct{ spec, refusal string }{
		{`{}`, ""},
		{`{"model":"ResNet-18","batch":"16"}`, ""},
		{`{"model":"ours","memory":{"peak":"8Gi","persistent":"3Gi"}}`, ""},
		{`{"model":"ResNet-81","batch":"16"}`, `spec.model: Not found: "ResNet-81": not in weft catalogue: write ResNet-18, or say what it needs in spec.memory`},
		{`{"model":"ResNet-18","batch":"17"}`, `spec.batch: Not found: "17": not in weft catalogue: write 16`},
		{`{"model":"zzzzzzzzzz"}`, `spec.model: Not found: "zzzzzzzzzz": not in weft catalogue: say what it needs in spec.memory, or leave spec empty to have it learned`},
		{`{"memory":{"peak":"3Gi","persistent":"8Gi"}}`, `spec.memory.persistent: Invalid value: "8Gi": outside (0, peak]`},
		{`{"memory":{"peak":"0"}}`, `spec.memory.peak: Invalid value: "0": outside (0, 1Ti]`},
		{`{"memory":{"peak":"9Ti"}}`, `spec.memory.peak: Invalid value: "9Ti": outside (0, 1Ti]`},
		{`{"memory":{"peak":"8Gi","shape":"wiggly"}}`, `spec.memory.shape: Invalid value: "wiggly": nobody measured such a shape`},
	} {
		answer := ask(t, Handler(fixed{}), PathProfiles, `{"metadata":{"name":"p"},"spec":`+c.spec+`}`)
		if answer.Allowed != (c.refusal == "") {
			t.Errorf("%s: %+v", c.spec, answer)
		}
		if c.refusal != "" && !strings.Contains(answer.Result.Message, c.refusal) {
			t.Errorf("%s: %s", c.spec, answer.Result.Message)
		}
	}
}

func TestHandlerRefusesWhatIsNoReview(t *testing.T) {
	h := Handler(fixed{})
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{http.MethodPost, PathShared, "", http.StatusBadRequest},
		{http.MethodPost, PathShared, "{}", http.StatusBadRequest},
		{http.MethodPost, PathShared, `{"request":{"object":"` + strings.Repeat("x", 9<<20) + `"}}`, http.StatusBadRequest},
		{http.MethodGet, PathShared, "", http.StatusMethodNotAllowed},
		{http.MethodPost, "/", "{}", http.StatusNotFound},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body)))
		if w.Code != c.code {
			t.Errorf("%s %s %.20s: %d, want %d", c.method, c.path, c.body, w.Code, c.code)
		}
	}
}

// FuzzHandler sends texts as Pods, in the form in which the API server writes those that it can read: each gets an answer, and a
// patch applies to what it is for.
func FuzzHandler(f *testing.F) {
	f.Add(fmt.Sprintf(newer, "0.9"))
	f.Add(`{"spec":{"containers":[{"name":"t","resources":{"limits":{"nvidia.com/gpu":1}}}]}}`)
	f.Add(`{"metadata":{"labels":null},"spec":{"initContainers":[{}],"containers":[{},{"resources":{"requests":{"nvidia.com/gpu":"1e0"},"limits":{"nvidia.com/gpu":"1"}}}]}}`)
	h := Handler(fixed{})
	f.Fuzz(func(t *testing.T, text string) {
		var p corev1.Pod
		if json.Unmarshal([]byte(text), &p) != nil {
			t.Skip("no Pod: the API server would not ask about it")
		}
		p.Namespace = "ml"
		object, err := json.Marshal(&p)
		if err != nil {
			t.Skip("a Pod that cannot be written: the API server would not ask about it")
		}
		answer := ask(t, h, PathShared, string(object))
		if len(answer.Patch) == 0 {
			return
		}
		patch, err := jsonpatch.DecodePatch(answer.Patch)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := patch.Apply(object); err != nil {
			t.Fatalf("%v: %s does not apply to %s", err, answer.Patch, object)
		}
	})
}
