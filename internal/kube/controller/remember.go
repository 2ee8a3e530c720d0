package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/learned"
)

// lastWrite bounds the write of what was learned before a controller ends. One that is killed loses what it learned since the last one.
const lastWrite = 5 * time.Second

// recall begins with what the last controller learned. What cannot be read is begun anew, and said.
func (c *Controller) recall(ctx context.Context) error {
	m, err := c.client.CoreV1().ConfigMaps(c.o.Namespace).Get(ctx, kube.Learned, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // an installation of a release before it
		c.o.Log.Warn("what is learned of jobs cannot be kept: its ConfigMap, and the right to it, come with weft's chart", "configmap", kube.Learned, "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", c.o.Namespace, kube.Learned, err)
	}
	known, err := learned.Restore(c.book, m)
	if errors.Is(err, learned.ErrNone) {
		return nil
	}
	if err != nil {
		c.o.Log.Warn("what was learned of jobs cannot be read: it is begun anew", "error", err)
		return nil
	}
	c.adjust.Resume(known)
	c.known = known
	c.o.Log.Info("goes on with what was learned of jobs", "until", known)
	return nil
}

// conclude waits until nothing is being written any more, and has the rest of what was learned written. The end may have cut off an earlier
// write of that.
func (c *Controller) conclude(ctx context.Context) {
	c.work.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
	defer cancel()
	c.remember(last)
	c.work.Wait()
}

// remember has what was learned since the last time written, where something was.
func (c *Controller) remember(ctx context.Context) {
	latest := c.adjust.Latest()
	if !latest.After(c.known) && !c.unwritten.Load() {
		return
	}
	patch, err := learned.Patch(c.book, latest)
	if err != nil {
		c.o.Log.Error("what was learned of jobs cannot be written down", "error", err)
		return
	}
	c.known = latest
	c.unwritten.Store(false)
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, writeTime)
		defer cancel()
		_, err := c.client.CoreV1().ConfigMaps(c.o.Namespace).Patch(ctx, kube.Learned, types.MergePatchType, patch, metav1.PatchOptions{})
		c.unwritten.Store(err != nil)
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			c.o.Log.Warn("what was learned of jobs cannot be written", "configmap", kube.Learned, "error", err)
		}
	})
}
