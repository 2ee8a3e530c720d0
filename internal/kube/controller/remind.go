package controller

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/kube"
)

// A kubelet fetches the claims of a Pod as soon as it hears that the Pod is its own. The API server lets it once its authorizer has heard
// the same, which is a moment later where it is busy. Who was refused tries again after 10 to 15 seconds, or when the Pod changes: so a
// Pod that does not begin is changed (decision 27).
const (
	remindAfter = time.Second // from when the Pod was bound; twice as long after each reminder
	mostRemind  = 3
	remindPause = 100 * time.Millisecond // between two: of thousands that come together most have begun when it is their turn
)

// reminder is of a Pod that is to begin on its node.
type reminder struct {
	pod   types.NamespacedName
	uid   types.UID
	times int // that its kubelet was reminded
}

// moved takes a change of a Pod; now is nil for one that is gone.
func (c *Controller) moved(old, now *corev1.Pod) {
	c.lanes.moved(old, now)
	if c.leading.Load() && old != nil && now != nil && old.Spec.NodeName == "" && now.Spec.NodeName != "" && kube.Managed(now.Labels) {
		c.reminders.AddAfter(reminder{pod: nameOf(now), uid: now.UID}, remindAfter)
	}
}

// remind reminds kubelets of Pods until the context ends.
func (c *Controller) remind(ctx context.Context) {
	defer context.AfterFunc(ctx, c.reminders.ShutDown)()
	for {
		r, over := c.reminders.Get()
		if over {
			return
		}
		c.reminders.Done(r)
		p := c.cache.pod(r.pod, r.uid)
		if p == nil || begun(p) {
			continue
		}
		r.times++
		if err := c.touch(ctx, p, r.times); err != nil && ctx.Err() == nil && !absent(err) {
			c.o.Log.Warn("a Pod that does not begin could not be changed: its kubelet tries again by itself", "pod", r.pod, "error", err)
		}
		if r.times < mostRemind {
			c.reminders.AddAfter(r, remindAfter<<r.times)
		}
		select {
		case <-ctx.Done():
		case <-time.After(remindPause):
		}
	}
}

// absent says whether a Pod is not there any more, or another one of its name is.
func absent(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// begun says whether a Pod's kubelet needs no reminder: it has what it needs of claims, or the Pod is to end.
func begun(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodPending {
		return true
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReadyToStartContainers {
			return c.Status == corev1.ConditionTrue // it has its sandbox, which is made after the claims
		}
	}
	return false
}

// touch changes nothing of a Pod but how often its kubelet was reminded.
func (c *Controller) touch(ctx context.Context, p *corev1.Pod, times int) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID, "annotations": map[string]string{kube.AnnotationReminded: strconv.Itoa(times)}},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	_, err = c.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		c.figures.count("remind", "failed")
		return err
	}
	c.figures.count("remind", "ok")
	return nil
}
