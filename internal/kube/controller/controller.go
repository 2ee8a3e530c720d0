// Package controller acts in a Kubernetes cluster on what internal/kube/queue asks and internal/dispatch answers: it writes the claims
// of jobs that start, lets their Pods go to the scheduler, says why others wait, and evicts Pods that cannot stay.
//
// What it knows is what the API shows, and what it wrote itself a moment ago. Nothing else is kept: another controller that takes over
// decides the same, by what this one learned up to a minute before.
package controller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/adjust"
	"weft.dev/weft/internal/kube/queue"
)

// Options of a controller.
type Options struct {
	Config    *rest.Config // of the cluster
	Namespace string       // of its lease, and of what it learned
	Identity  string       // in the lease: another one for every process
	Elect     bool         // only the one that has the lease acts; without it, there is no other
	Log       *slog.Logger
	Estimate  estimate.Options // how predictions begin
	Version   string
	Remember  time.Duration // the least between two writes of what was learned; 0 means a minute

	// Check says what is wrong with a policy: one with faults is not in force. nil takes all.
	Check func(*v1alpha1.SharingPolicySpec) field.ErrorList
}

// Controller is one process that may act.
type Controller struct {
	o        Options
	client   kubernetes.Interface
	cache    *caches
	assumed  *assumed
	lanes    *lanes
	voice    *voice
	figures  *figures
	book     *estimate.Book   // of the loop
	memory   queue.Memory     // of the loop
	adjust   *adjust.Adjuster // of the loop
	own      rest.Interface   // of weft's own kinds
	kick     chan struct{}
	writes   chan struct{} // one for each write that may be under way
	work     sync.WaitGroup
	demanded time.Time               // of the loop: when it last looked for what the queue wants
	offers   map[types.UID]time.Time // of the loop: native Pods that a GPU is free for, and since when

	leading   atomic.Bool
	reminders workqueue.TypedDelayingInterface[reminder] // of a leading one

	remembered time.Time   // of the loop: when it last wrote what was learned
	known      time.Time   // of the loop: until when windows are in what was written
	unwritten  atomic.Bool // it was not taken
}

// Figures of acting.
const (
	pause       = 20 * time.Millisecond // between two plans at least: what comes meanwhile is decided together
	mostPause   = 2 * time.Second
	restFactor  = 4                // times what a plan took, the pause after it: planning takes a fifth of one processor at most
	idle        = 10 * time.Second // between two plans while nothing changes: jobs grow older
	writers     = 16               // writes at a time
	leaseLasts  = 15 * time.Second
	leaseRenews = 10 * time.Second
	leaseRetry  = 2 * time.Second
)

// New is a controller that does nothing yet.
func New(o Options) (*Controller, error) {
	config := rest.CopyConfig(o.Config)
	config.QPS = -1 // the API server's own fairness is the limit
	config.UserAgent = "weft-controller/" + o.Version
	client, err := kubernetes.NewForConfig(protobuf(config))
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	if o.Remember <= 0 {
		o.Remember = time.Minute
	}
	c := &Controller{o: o, client: client, assumed: newAssumed(), lanes: newLanes(), kick: make(chan struct{}, 1),
		writes: make(chan struct{}, writers), offers: map[types.UID]time.Time{}, adjust: adjust.New(),
		reminders: workqueue.NewTypedDelayingQueue[reminder]()}
	if c.own, err = ownClient(config); err != nil {
		return nil, err
	}
	if c.cache, err = newCaches(client, c.own, o.Check, c.wake, c.moved); err != nil {
		return nil, err
	}
	c.book = estimate.New(o.Estimate)
	c.voice = newVoice(client, o.Log, func() bool { return c.lanes.travelling() >= writers })
	c.figures = newFigures(o.Version)
	return c, nil
}

// protobuf has built-in objects sent in the shorter form.
func protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return config
}

// wake has the loop look again.
func (c *Controller) wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Ready says what of the cluster is not known yet that decisions need; nil for nothing.
func (c *Controller) Ready() error { return c.cache.synced() }

// Policy is the policy in force; nil for none. With Profiles it lets a Controller answer what the webhook asks.
func (c *Controller) Policy(context.Context) (*v1alpha1.SharingPolicySpec, error) {
	if err := c.cache.has("sharingpolicies"); err != nil {
		return nil, err
	}
	if p := c.cache.policy(); p != nil {
		return &p.Spec, nil
	}
	return nil, nil //nolint:nilnil // no policy is an answer
}

// Profiles are the names of the profiles of a namespace.
func (c *Controller) Profiles(_ context.Context, namespace string) ([]string, error) {
	if err := c.cache.has("workloadprofiles"); err != nil {
		return nil, err
	}
	var names []string
	for _, p := range c.cache.listProfiles() {
		if p.Namespace == namespace {
			names = append(names, p.Name)
		}
	}
	return names, nil
}

// Run acts until the context ends or the lease is lost, which is an error: the process is to end then.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.cache.start(ctx)
	if err := c.cache.wait(ctx, c.o.Log); err != nil {
		return ignoreEnd(ctx, err)
	}
	if !c.o.Elect {
		return ignoreEnd(ctx, c.lead(ctx))
	}
	return c.elected(ctx)
}

// elected acts while it holds the lease, and gives it back when nothing is being written any more.
func (c *Controller) elected(ctx context.Context) error {
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	acted := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Name: kube.Controller, Namespace: c.o.Namespace}, Client: c.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.o.Identity}},
		LeaseDuration: leaseLasts, RenewDeadline: leaseRenews, RetryPeriod: leaseRetry, ReleaseOnCancel: true, Name: kube.Controller,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				acting, stop := context.WithCancel(leading)
				defer stop()
				defer context.AfterFunc(ctx, stop)()
				acted <- c.lead(acting)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("lease %s/%s: %w", c.o.Namespace, kube.Controller, err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		elector.Run(holding)
	}()
	select {
	case err = <-acted:
	case <-ctx.Done():
		if elector.IsLeader() {
			err = <-acted
		}
	}
	release()
	<-over
	if err == nil && ctx.Err() == nil {
		err = fmt.Errorf("lease %s/%s is lost: another controller acts", c.o.Namespace, kube.Controller)
	}
	return ignoreEnd(ctx, err)
}

// ignoreEnd takes the end of a context for no error.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// lead acts until the context ends; it returns when nothing is being written any more.
func (c *Controller) lead(ctx context.Context) error {
	defer c.conclude(ctx)
	c.o.Log.Info("leading", "identity", c.o.Identity)
	if err := c.cache.catchUp(ctx, c.client); err != nil {
		return fmt.Errorf("state before the first plan: %w", err)
	}
	if err := c.recall(ctx); err != nil {
		return fmt.Errorf("what was learned before the first plan: %w", err)
	}
	c.leading.Store(true)
	c.work.Go(func() { c.voice.run(ctx) })
	c.work.Go(func() { c.remind(ctx) })
	timer, rest := time.NewTimer(0), pause
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.kick:
		case <-timer.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
		select { // what came meanwhile is decided together
		case <-c.kick:
		default:
		}
		began := time.Now()
		timer.Reset(c.turn(ctx, began))
		rest = min(mostPause, max(pause, restFactor*time.Since(began)))
	}
}
