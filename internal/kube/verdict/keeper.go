package verdict

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"weft.dev/weft/api/v1alpha1"
)

// Keeper writes the status of all policies and profiles. Several may do so at once: they write the same.
type Keeper struct {
	Client client.Client // knows the kinds of v1alpha1
	Log    *slog.Logger
}

// period is how long a change may wait for its verdict.
const period = 5 * time.Second

// Run looks again and again until the context ends. What goes wrong is logged, and tried again.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		if err := k.Look(ctx, time.Now()); err != nil && ctx.Err() == nil {
			k.Log.Warn("status of policies and profiles: trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Look writes what is to change at a time. One object that cannot be written holds up no other.
func (k *Keeper) Look(ctx context.Context, now time.Time) error {
	var policies v1alpha1.SharingPolicyList
	var profiles v1alpha1.WorkloadProfileList
	if err := errors.Join(k.Client.List(ctx, &policies), k.Client.List(ctx, &profiles)); err != nil {
		return fmt.Errorf("list policies and profiles: %w", err)
	}
	at := metav1.NewTime(now)
	var faults []error
	for i := range policies.Items {
		p := &policies.Items[i]
		if s := Policy(p, at); !same(s, p.Status) {
			before := p.DeepCopy()
			p.Status = s
			faults = append(faults, k.write(ctx, p, before))
		}
	}
	for i := range profiles.Items {
		p := &profiles.Items[i]
		if s := Profile(p, at); !same(s, p.Status) {
			before := p.DeepCopy()
			p.Status = s
			faults = append(faults, k.write(ctx, p, before))
		}
	}
	return errors.Join(faults...)
}

// write writes a status, unless somebody changed the object meanwhile: the next look sees that.
func (k *Keeper) write(ctx context.Context, now, before client.Object) error {
	err := k.Client.Status().Patch(ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) == nil || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("status of %s: %w", client.ObjectKeyFromObject(now), err)
}
