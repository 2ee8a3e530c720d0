package driver

import (
	"time"

	"google.golang.org/grpc"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"weft.dev/weft/internal/kube/driver/portion"
)

// assurance is how often the kubelet is told of health that did not change: after 30 s without a word it takes it for unknown.
const assurance = 10 * time.Second

// NodeWatchResources implements drahealth.DRAResourceHealthServer: it tells the kubelet how the GPUs are, at once and when it changes,
// for the status of their containers.
func (p plugin) NodeWatchResources(_ *drahealth.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[drahealth.NodeWatchResourcesResponse]) error {
	tick := time.NewTicker(assurance)
	defer tick.Stop()
	for {
		devices, changed := p.d.health(time.Now())
		if err := stream.Send(&drahealth.NodeWatchResourcesResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-stream.Context().Done():
			return nil
		case <-p.d.ended:
			return nil
		}
	}
}

// health is that of the GPUs as the kubelet is told of it, and what is closed when it changes.
func (d *Driver) health(now time.Time) (devices []*drahealth.DeviceHealth, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, fault := range d.faults {
		h := &drahealth.DeviceHealth{Device: &drahealth.DeviceIdentifier{PoolName: d.o.Node, DeviceName: portion.DeviceName(i)}, LastUpdatedTime: now.Unix()}
		switch {
		case !d.looked:
			h.Health = drahealth.HealthStatus_UNKNOWN
		case fault == "":
			h.Health = drahealth.HealthStatus_HEALTHY
		default:
			h.Health, h.Message = drahealth.HealthStatus_UNHEALTHY, fault.text()
		}
		devices = append(devices, h)
	}
	return devices, d.changed
}
