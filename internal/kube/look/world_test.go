package look_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/kube/world"
)

// bed is a world to look at.
type bed struct {
	*world.World
	wrong   []string
	learned *corev1.ConfigMap
}

func newWorld(tb testing.TB) *bed {
	tb.Helper()
	return &bed{World: world.New(tb)}
}

func (w *bed) look() *look.Look {
	return look.New(&look.Cluster{Cluster: w.Cluster, Wrong: w.wrong, Learned: w.learned}, estimate.Options{})
}
