package claim

import (
	"encoding/json"
	"math"

	resourcev1 "k8s.io/api/resource/v1"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/kube"
)

// Window is what the agent last said of the claim's worker; false where it said nothing yet, or nothing that can be.
func Window(c *resourcev1.ResourceClaim) (*v1alpha1.Window, bool) {
	for i := range c.Status.Devices {
		d := &c.Status.Devices[i]
		if d.Driver != kube.Driver || d.Data == nil {
			continue
		}
		w := &v1alpha1.Window{}
		if err := json.Unmarshal(d.Data.Raw, w); err != nil || w.Kind != "Window" || w.APIVersion != v1alpha1.GroupVersion.String() || !valid(w) {
			return nil, false
		}
		return w, true
	}
	return nil, false
}

// valid says whether the figures of a window are ones.
func valid(w *v1alpha1.Window) bool {
	for _, v := range []float64{w.Seconds, w.Age, w.Wait, w.Stall, w.Held, w.Used, w.Utilisation} {
		if !(v >= 0 && v < math.MaxInt64/1e9) { // it is a time.Duration
			return false
		}
	}
	return w.Seconds > 0 && w.Iterations >= 0 && w.Utilisation <= 1 && w.Beside >= 0 && !w.End.IsZero() && w.Peak.Sign() >= 0
}
