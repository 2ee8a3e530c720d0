package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"weft.dev/weft/internal/kube"
)

// Reasons of the condition kube.ConditionServing of a Node.
const (
	ReasonServing      = "Serving"
	ReasonExcluded     = "Excluded"            // the node's label says so
	ReasonNativePlugin = "NativePluginPresent" // NVIDIA's device plugin or driver has the GPUs
	ReasonNoSharing    = "SharingUnsupported"  // the cluster cannot share devices
)

// nvidiaDriver is NVIDIA's DRA driver.
const nvidiaDriver = "gpu.nvidia.com"

// verdict is whether weft serves the GPUs of a node, and why not.
type verdict struct {
	may          bool
	reason, text string
}

// known says whether it is a verdict at all.
func (v verdict) known() bool { return v.reason != "" }

// judged says whether there is a verdict.
func (d *Driver) judged() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.serving.known()
}

// droppedError is what the API server did not take of the slices: without it, a GPU cannot be shared.
type droppedError struct{ features []string }

func (e *droppedError) Error() string {
	return fmt.Sprintf("the API server dropped what %v needs: weft needs Kubernetes 1.36 or later with these features enabled", e.features)
}

// judgeNode decides it. One of the two serves a GPU: weft, or NVIDIA's own plugin, whose resource a Node has in its capacity (zero
// where it is gone), or NVIDIA's driver, which publishes slices.
func judgeNode(n *corev1.Node, slices []resourcev1.ResourceSlice, dropped *droppedError) verdict {
	if n.Labels[kube.LabelServe] == "false" {
		return verdict{reason: ReasonExcluded, text: fmt.Sprintf("the node has the label %s=false", kube.LabelServe)}
	}
	if q, ok := n.Status.Capacity[kube.ExtendedResource]; ok && !q.IsZero() {
		return verdict{reason: ReasonNativePlugin, text: fmt.Sprintf("a device plugin serves %s %s on this node: remove it, or label the node %s=false",
			q.String(), kube.ExtendedResource, kube.LabelServe)}
	}
	for i := range slices {
		if s := &slices[i].Spec; s.Driver == nvidiaDriver && s.NodeName != nil && *s.NodeName == n.Name && len(s.Devices) > 0 {
			return verdict{reason: ReasonNativePlugin, text: fmt.Sprintf("driver %s serves %d devices on this node: remove it, or label the node %s=false",
				nvidiaDriver, len(s.Devices), kube.LabelServe)}
		}
	}
	if dropped != nil {
		return verdict{reason: ReasonNoSharing, text: dropped.Error()}
	}
	return verdict{may: true, reason: ReasonServing, text: "the node's GPUs are served by " + kube.Driver}
}

// condition is a verdict as the Node has it. It keeps the time of the last change where nothing changed.
func (v verdict) condition(now metav1.Time, old []corev1.NodeCondition) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: kube.ConditionServing, Status: corev1.ConditionFalse, Reason: v.reason, Message: v.text, LastHeartbeatTime: now, LastTransitionTime: now}
	if v.may {
		c.Status = corev1.ConditionTrue
	}
	if i := slices.IndexFunc(old, func(o corev1.NodeCondition) bool { return o.Type == c.Type }); i >= 0 && old[i].Status == c.Status {
		c.LastTransitionTime = old[i].LastTransitionTime
	}
	return c
}

// judge looks at the node and writes the condition where it changed. Without an answer of the API server the last verdict stands;
// before there is one, nothing is published or prepared.
func (d *Driver) judge(ctx context.Context) {
	node, err := d.o.Client.CoreV1().Nodes().Get(ctx, d.o.Node, metav1.GetOptions{})
	if err != nil {
		d.log.Error("the node cannot be read", "fault", err)
		return
	}
	list, err := d.o.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: fmt.Sprintf("%s=%s,%s=%s", resourcev1.ResourceSliceSelectorDriver, nvidiaDriver, resourcev1.ResourceSliceSelectorNodeName, d.o.Node)})
	if err != nil {
		d.log.Error("the slices of other drivers cannot be read", "fault", err)
		return
	}
	d.mu.Lock()
	v := judgeNode(node, list.Items, d.dropped)
	changed := d.serving != v
	d.serving = v
	d.mu.Unlock()
	if changed && !v.may {
		d.log.Error("the GPUs of this node are not served", "reason", v.reason, "text", v.text)
	}
	if err := d.setCondition(ctx, node, v); err != nil {
		d.log.Error("the node's condition cannot be written", "fault", err)
	}
}

// setCondition writes the node's condition, if it says something else.
func (d *Driver) setCondition(ctx context.Context, node *corev1.Node, v verdict) error {
	c := v.condition(metav1.Now(), node.Status.Conditions)
	for _, old := range node.Status.Conditions {
		if old.Type == c.Type && old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
			return nil
		}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{c}}})
	if err != nil {
		return err
	}
	_, err = d.o.Client.CoreV1().Nodes().Patch(ctx, d.o.Node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// lookAtNode serves, or ceases to, as the node is now. Where nothing has changed that writes nothing, unless somebody else did.
func (d *Driver) lookAtNode(ctx context.Context) {
	d.judge(ctx)
	d.publish(ctx)
}

// allowed says why nothing new may be prepared. What is prepared stays so.
func (d *Driver) allowed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.serving.may {
		return nil
	}
	if !d.serving.known() {
		return errors.New("it is not known yet whether weft serves this node")
	}
	return fmt.Errorf("weft does not serve this node (%s): %s", d.serving.reason, d.serving.text)
}

// drop notes what the API server did not take of the slices; without sharing nothing is served until the driver starts anew.
func (d *Driver) drop(fields *resourceslice.DroppedFieldsError) {
	features := fields.DisabledFeatures()
	if !slices.Contains(features, "DRAConsumableCapacity") {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropped = &droppedError{features}
}
