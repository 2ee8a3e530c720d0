package queue

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/pod"
)

// Memory remembers from one question to the next what was read of objects, by their identity: who hands it in must hand in another
// object where one changed, as informers do. It saves most of the time of Build, and changes nothing else. It is for one goroutine;
// the zero value is ready.
type Memory struct {
	policy *v1alpha1.SharingPolicy
	pods   map[*corev1.Pod]*podFacts
	claims map[*resourcev1.ResourceClaim]claimFacts
	used   struct {
		pods   map[*corev1.Pod]*podFacts
		claims map[*resourcev1.ResourceClaim]claimFacts
	}
}

// podFacts are what a Pod asks of its node, and, once somebody asked, of weft.
type podFacts struct {
	requests corev1.ResourceList
	terms    string // what decides about nodes; "" until asked
	read     bool
	request  *pod.Request
	faults   field.ErrorList
}

type claimFacts struct {
	share claim.Share
	err   error
}

// begin starts a question.
func (m *Memory) begin(policy *v1alpha1.SharingPolicy) {
	if m.policy != policy {
		m.policy, m.pods = policy, nil // what Pods ask depends on it
	}
	m.used.pods = make(map[*corev1.Pod]*podFacts, len(m.pods))
	m.used.claims = make(map[*resourcev1.ResourceClaim]claimFacts, len(m.claims))
}

// end forgets what the question had no use for. What is asked until the next begins is remembered as well.
func (m *Memory) end() { m.pods, m.claims = m.used.pods, m.used.claims }

// pod is what is known of a Pod.
func (m *Memory) pod(p *corev1.Pod) *podFacts {
	if f := m.used.pods[p]; f != nil {
		return f
	}
	f := m.pods[p]
	if f == nil {
		f = &podFacts{requests: resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})}
	}
	m.used.pods[p] = f
	return f
}

// request is what a Pod asks of weft.
func (m *Memory) request(p *corev1.Pod) (*pod.Request, field.ErrorList) {
	f := m.pod(p)
	if !f.read {
		var spec *v1alpha1.SharingPolicySpec
		if m.policy != nil {
			spec = &m.policy.Spec
		}
		f.read = true
		f.request, f.faults = pod.Read(p, pod.In(spec, p.Namespace, true))
	}
	return f.request, f.faults
}

// terms are what of a Pod decides about nodes, as a key: Pods of one template have the same.
func (m *Memory) terms(p *corev1.Pod) string {
	f := m.pod(p)
	if f.terms == "" {
		raw, err := json.Marshal(constraintsOf(p, f.requests))
		if err != nil {
			raw = []byte(p.UID) // it is compared with nobody
		}
		f.terms = string(raw)
	}
	return f.terms
}

// share is what a claim says.
func (m *Memory) share(c *resourcev1.ResourceClaim) (claim.Share, error) {
	f, ok := m.used.claims[c]
	if ok {
		return f.share, f.err
	}
	if f, ok = m.claims[c]; !ok {
		f.share, f.err = claim.Read(c)
	}
	m.used.claims[c] = f
	return f.share, f.err
}
