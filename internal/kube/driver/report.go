package driver

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	applyv1 "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/driver/checkpoint"
)

// fieldManager is whose the reports in claims are.
const fieldManager = "weft-agent"

// Figures of the reporter.
const (
	looks     = 20               // at the agent in a period
	writers   = 4                // claims that are written beside each other
	writeTime = 10 * time.Second // bounds one write
)

// reporter tells the cluster what the agent sees of each worker: the last window, in the status of its claim.
type reporter struct {
	client kubernetes.Interface
	agent  asker
	store  *checkpoint.Store
	log    *slog.Logger
	slots  chan struct{} // an element for each write that goes on
	work   *sync.WaitGroup

	mu      sync.Mutex
	windows windows
	failing map[string]bool // claims whose last write failed
}

// newReporter makes a reporter of windows of a period. Its writes are counted in work.
func newReporter(o *Options, c *claims, work *sync.WaitGroup) *reporter {
	return &reporter{client: o.Client, agent: c.agent, store: c.store, log: o.Log, slots: make(chan struct{}, writers), work: work,
		windows: windows{period: o.Window, of: map[string]*running{}}, failing: map[string]bool{}}
}

// look looks at the agent, and has the windows written that are due. It waits for no write.
func (r *reporter) look(ctx context.Context) {
	answer, err := r.agent.Ask(ctx, agent.Request{Op: agent.OpStats})
	if err != nil || answer.Stats == nil {
		return // the agent ends, and the driver with it
	}
	entries := r.store.Entries()
	shares := func(claim string) bool {
		e, known := entries[claim]
		return known && e.State == checkpoint.Completed && e.Portion.Share != nil
	}
	r.mu.Lock()
	list := r.windows.look(time.Now(), answer.Stats, shares)
	for claim := range r.failing {
		if !shares(claim) {
			delete(r.failing, claim)
		}
	}
	r.mu.Unlock()
	for _, d := range list {
		e := entries[d.claim]
		r.work.Go(func() { r.write(ctx, &e, d) })
	}
}

// write writes one window when it is its turn.
func (r *reporter) write(ctx context.Context, e *checkpoint.Entry, d due) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return
	}
	timed, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	err := r.apply(timed, e, &d.window)
	if ctx.Err() == nil {
		r.answered(d.claim, err)
	}
}

// answered books what became of a write. Trouble is said once, until all is well again; that a claim is gone, or is another one by
// now, is none.
func (r *reporter) answered(claim string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.windows.told(claim, err == nil)
	before := len(r.failing)
	if delete(r.failing, claim); err != nil && !elsewhere(err) {
		r.failing[claim] = true
	}
	switch {
	case before == 0 && len(r.failing) > 0:
		r.log.Error("what is seen of workers cannot be told to the cluster: the next report covers it", "claim", claim, "fault", err)
	case before > 0 && len(r.failing) == 0:
		r.log.Info("what is seen of workers is told again")
	}
}

// elsewhere says whether a write failed because its claim is gone or, by now, another one.
func elsewhere(err error) bool {
	var status *apierrors.StatusError
	if errors.As(err, &status) && status.ErrStatus.Details != nil {
		for _, c := range status.ErrStatus.Details.Causes {
			if c.Field == "metadata.uid" {
				return true
			}
		}
	}
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err)
}

// apply writes a window to the entry of the claim's first device. The UID keeps it off a later claim of that name.
func (r *reporter) apply(ctx context.Context, e *checkpoint.Entry, w *v1alpha1.Window) error {
	raw, err := json.Marshal(w)
	if err != nil {
		return err
	}
	own, of := e.Portion.Devices[0], e.Portion.Claim
	device := applyv1.AllocatedDeviceStatus().WithDriver(kube.Driver).WithPool(own.Pool).WithDevice(own.Name).WithData(runtime.RawExtension{Raw: raw})
	if own.ShareID != "" {
		device.WithShareID(own.ShareID)
	}
	claim := applyv1.ResourceClaim(of.Name, of.Namespace).WithUID(types.UID(of.UID)).WithStatus(applyv1.ResourceClaimStatus().WithDevices(device))
	_, err = r.client.ResourceV1().ResourceClaims(of.Namespace).ApplyStatus(ctx, claim, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}
