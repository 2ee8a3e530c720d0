package driver

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/record"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/kube/driver/checkpoint"
	"weft.dev/weft/internal/kube/driver/portion"
	"weft.dev/weft/internal/unit"
)

// sick is an agent whose first GPU may have an XID.
type sick struct{ xid *uint64 }

func (s *sick) Ask(context.Context, agent.Request) (agent.Response, error) {
	return agent.Response{GPUs: []agent.GPUState{{GPU: 0, XID: s.xid}, {GPU: 1}}}, nil
}

// TestFaultThatEndsPods: a kubelet may have taken back the claim of a program that a fault ended before the driver sees the fault. Its Pod
// is told all the same, and nobody who had left before.
func TestFaultThatEndsPods(t *testing.T) {
	store, err := checkpoint.Open(filepath.Join(t.TempDir(), "checkpoint.json"))
	if err != nil {
		t.Fatal(err)
	}
	events, gpus, a := record.NewFakeRecorder(10), gpusOf(2, unit.GiB), &sick{}
	d := &Driver{o: Options{Node: node, GPUs: gpus}, log: slog.New(slog.DiscardHandler), faults: make([]Fault, len(gpus)), changed: make(chan struct{}),
		tell: &teller{name: node, recorder: events}, claims: &claims{agent: a, store: store}}
	for name, gpu := range map[string]int{"early": 0, "hit": 0, "stays": 0, "elsewhere": 1} {
		e := checkpoint.Entry{State: checkpoint.Completed, Portion: portion.Portion{Claim: portion.Object{Namespace: "ml", Name: name, UID: name},
			Pod: portion.Object{Namespace: "ml", Name: name, UID: name}, Devices: []portion.Device{{UUID: gpus[gpu].UUID.String()}}}}
		if err := store.Put(e); err != nil {
			t.Fatal(err)
		}
	}
	leave := func(name string) {
		t.Helper()
		if err := store.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	d.lookAtGPUs(t.Context())
	leave("early")
	d.lookAtGPUs(t.Context())
	a.xid = new(uint64(79))
	leave("hit")
	d.lookAtGPUs(t.Context())
	close(events.Events)
	told := 0
	for range events.Events {
		told++
	}
	if told != 3 {
		t.Errorf("%d Events, want those of the node, of who was hit and of who stays", told)
	}
}
