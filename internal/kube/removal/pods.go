package removal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/kube/queue"
)

// Pod is one that weft cannot be removed from under.
type Pod struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	UID       types.UID  `json:"-"`
	Version   string     `json:"-"`     // of the object that was read
	Claim     string     `json:"claim"` // that no Pod uses, and that has GPUs; "" of a Pod
	Mode      look.Mode  `json:"mode"`  // shared or native
	State     look.State `json:"state"` // running, stopping, ended; waiting behind weft's gate
	Node      string     `json:"node"`  // "" where it is on none
	GPUs      []string   `json:"gpus"`  // "node-3/gpu1"
	Owner     string     `json:"owner"` // "Job/bert"; "" for none, and nobody makes it anew
	Orphaned  bool       `json:"no_agent"`
	Since     *time.Time `json:"since_at"`
}

// String is how people name it.
func (p *Pod) String() string {
	if p.Claim != "" {
		return "resource claim " + p.Namespace + "/" + p.Claim
	}
	return p.Namespace + "/" + p.Name
}

// Held are the Pods that have GPUs of weft's driver, by name: what their claims say, and so native Pods, too. A claim is given back only
// when its kubelet has had everything undone, so a Pod that is not here needs no driver any more. Who was deleted by force is not seen.
func (w *World) Held() []Pod {
	pods, agents := map[types.UID]*corev1.Pod{}, w.agents()
	for _, p := range w.Pods {
		pods[p.UID] = p
	}
	found := map[types.UID]*Pod{}
	var list []*Pod
	for _, c := range w.Claims {
		gpus := given(c)
		if len(gpus) == 0 {
			continue
		}
		users := claim.Users(c)
		if len(users) == 0 {
			list = append(list, &Pod{Namespace: c.Namespace, Claim: c.Name, Mode: modeOf(c), Node: gpus[0].Pool, GPUs: named(gpus), Orphaned: !agents[gpus[0].Pool]})
		}
		for _, u := range users {
			p := found[u.UID]
			if p == nil {
				p = holder(c, u, gpus[0].Pool, pods[u.UID])
				p.Orphaned = !agents[p.Node]
				found[u.UID], list = p, append(list, p)
			}
			p.GPUs = append(p.GPUs, named(gpus)...)
		}
	}
	return sorted(list)
}

// given are the devices that a claim was given, those that it only looks at among them: they are prepared, too.
func given(c *resourcev1.ResourceClaim) []claim.Device {
	if c.Status.Allocation == nil {
		return nil
	}
	var list []claim.Device
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == kube.Driver {
			list = append(list, claim.Device{Pool: r.Pool, Name: r.Device})
		}
	}
	return list
}

// named are devices as people read them.
func named(list []claim.Device) []string {
	names := make([]string, len(list))
	for i, d := range list {
		names[i] = d.Pool + "/" + strings.Replace(d.Name, "gpu-", "gpu", 1)
	}
	return names
}

func modeOf(c *resourcev1.ResourceClaim) look.Mode {
	if claim.Managed(c) {
		return look.Shared
	}
	return look.Native
}

// holder is who uses a claim. The Pod is nil where it is gone already.
func holder(c *resourcev1.ResourceClaim, u claim.User, node string, p *corev1.Pod) *Pod {
	if p == nil {
		return &Pod{Namespace: c.Namespace, Name: u.Name, UID: u.UID, Mode: modeOf(c), State: look.Ended, Node: node}
	}
	out := podOf(p, modeOf(c))
	out.Node = cmp.Or(out.Node, node)
	return out
}

// podOf is a Pod as it is told of.
func podOf(p *corev1.Pod, mode look.Mode) *Pod {
	since := p.CreationTimestamp.Time
	if p.Status.StartTime != nil {
		since = p.Status.StartTime.Time
	}
	out := &Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Version: p.ResourceVersion, Mode: mode, State: look.Running, Node: p.Spec.NodeName, Since: &since}
	if owner := queue.OwnerOf(p); owner.Kind != "Pod" {
		out.Owner = fmt.Sprintf("%s/%s", owner.Kind, owner.Name)
	}
	switch {
	case queue.Done(p):
		out.State = look.Ended
	case p.DeletionTimestamp != nil:
		out.State = look.Stopping
	case p.Spec.NodeName == "":
		out.State = look.Waiting
	}
	return out
}

// Waiting are the Pods that opted in and have nothing yet: without weft they would wait for ever, as what they asked for was taken out of
// them. They hold up nothing else, and can be deleted at any time.
func (w *World) Waiting() []Pod {
	holds := map[types.UID]bool{}
	for _, c := range w.Claims {
		if len(given(c)) > 0 {
			for _, u := range claim.Users(c) {
				holds[u.UID] = true
			}
		}
	}
	var list []*Pod
	for _, p := range w.Pods {
		if kube.Managed(p.Labels) && p.Spec.NodeName == "" && p.DeletionTimestamp == nil && !queue.Done(p) && !holds[p.UID] {
			list = append(list, podOf(p, look.Shared))
		}
	}
	return sorted(list)
}

// agents are the nodes on which an agent runs.
func (w *World) agents() map[string]bool {
	on := map[string]bool{}
	for _, p := range w.Pods {
		if p.Namespace == w.Namespace && p.Labels[labelName] == "weft" && p.Labels[labelComponent] == "agent" && p.Status.Phase == corev1.PodRunning {
			on[p.Spec.NodeName] = true
		}
	}
	return on
}

// Labels of weft's own Pods.
const (
	labelName      = "app.kubernetes.io/name"
	labelComponent = "app.kubernetes.io/component"
)

// sorted are Pods by name, each GPU once.
func sorted(list []*Pod) []Pod {
	out := make([]Pod, len(list))
	for i, p := range list {
		slices.Sort(p.GPUs)
		p.GPUs = slices.Compact(p.GPUs)
		if p.GPUs == nil {
			p.GPUs = []string{}
		}
		out[i] = *p
	}
	slices.SortFunc(out, func(a, b Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.Claim, b.Claim))
	})
	return out
}
