// Package kube tests weft in a real Kubernetes cluster of one node: stock control plane, kubelet and containerd, the manifests that
// users apply, real programs in containers, on emulated GPUs. It is skipped, and says why, where a machine can have no cluster.
package kube

import (
	"context"
	"os"
	"testing"
	"time"

	"weft.dev/weft/test/suite"
)

var built suite.Built

func TestMain(m *testing.M) {
	code := suite.Main(m, &built)
	if err := away(); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		code = max(code, 1)
	}
	os.Exit(code)
}

// patience is how long things of a cluster may take on a machine that others use as well.
const patience = 2 * time.Minute

// eventually waits until done says "", and fails with what it says last.
func eventually(t *testing.T, what string, done func(ctx context.Context) string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		missing := done(ctx)
		if missing == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %s", what, patience, missing)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
