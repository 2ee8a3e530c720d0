package driver

import (
	"context"
	"errors"
	"time"

	"k8s.io/dynamic-resource-allocation/resourceslice"

	"weft.dev/weft/internal/kube"
)

// A kubelet that starts deletes the ResourceSlices of its node, since no driver is there yet that it knows of. A driver that was there all
// the time has to write them again, and kubeletplugin's way with them does so after half a minute or a whole one, in which the node seems to
// have no GPU (decision 28). So they are published with shorter times.
const (
	// slicesShown is how long a slice that was written is believed to be there although the watch does not show it.
	slicesShown = 3 * time.Second
	// slicesAgain is from a change of slices until they are looked at again: longer, so that what is believed by then was shown.
	slicesAgain = 4 * time.Second
)

// publish tells the scheduler of the GPUs as they are now. A node that weft may not serve has none. The first call waits for the
// API server.
func (d *Driver) publish(ctx context.Context) {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	d.mu.Lock()
	v := d.serving
	r := Resources(d.o.Node, d.o.Version, d.o.GPUs, d.faults)
	d.mu.Unlock()
	if !v.known() {
		return // what the last driver published stands
	}
	if !v.may {
		r = Resources(d.o.Node, d.o.Version, nil, nil)
	}
	if d.slices != nil {
		d.slices.Update(&r)
		return
	}
	shown, again := slicesShown, slicesAgain
	var err error
	d.slices, err = resourceslice.StartController(ctx, resourceslice.Options{DriverName: kube.Driver, KubeClient: d.o.Client,
		Owner: &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: d.o.Node}, Resources: &r, MutationCacheTTL: &shown, SyncDelay: &again,
		ErrorHandler: d.unpublished})
	if err != nil && ctx.Err() == nil {
		d.log.Error("the GPUs cannot be published", "fault", err)
	}
}

// unpublished takes why slices cannot be written as they should be; they are tried again.
func (d *Driver) unpublished(ctx context.Context, err error, msg string) {
	if ctx.Err() != nil {
		return
	}
	var fields *resourceslice.DroppedFieldsError
	if errors.As(err, &fields) {
		d.drop(fields)
	}
	d.log.Error(msg, "fault", err)
}
