package controller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/queue"
)

// caches are the informers of all that decides.
type caches struct {
	named map[string]cache.SharedIndexInformer

	nodes    corelisters.NodeLister
	pods     corelisters.PodLister
	slices   resourcelisters.ResourceSliceLister
	claims   resourcelisters.ResourceClaimLister
	held     cache.Indexer // slices
	given    cache.Indexer // claims
	policies cache.Store
	profiles cache.Store
	check    func(*v1alpha1.SharingPolicySpec) field.ErrorList // nil takes all
}

// newCaches sets up the informers; woken is called at every change that a decision may depend on, moved at every change of a Pod, with nil
// for one that is gone.
func newCaches(client kubernetes.Interface, own rest.Interface, check func(*v1alpha1.SharingPolicySpec) field.ErrorList, woken func(),
	moved func(old, now *corev1.Pod)) (*caches, error) {
	f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(keep))
	core, dra := f.Core().V1(), f.Resource().V1()
	c := &caches{check: check, nodes: core.Nodes().Lister(), pods: core.Pods().Lister(), slices: dra.ResourceSlices().Lister(),
		claims: dra.ResourceClaims().Lister()}
	policies := informerOf(own, "sharingpolicies", &v1alpha1.SharingPolicy{})
	profiles := informerOf(own, "workloadprofiles", &v1alpha1.WorkloadProfile{})
	c.policies, c.profiles = policies.GetStore(), profiles.GetStore()
	c.named = map[string]cache.SharedIndexInformer{
		"nodes": core.Nodes().Informer(), "pods": core.Pods().Informer(), "resourceslices": dra.ResourceSlices().Informer(),
		"resourceclaims": dra.ResourceClaims().Informer(), "sharingpolicies": policies, "workloadprofiles": profiles,
	}
	if err := c.addIndexes(); err != nil {
		return nil, err
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(now any) {
			if matters(nil, now) {
				woken()
			}
		},
		UpdateFunc: func(old, now any) {
			if matters(old, now) {
				woken()
			}
		},
		DeleteFunc: func(old any) {
			if matters(old, nil) {
				woken()
			}
		},
	}
	pods := cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, now any) { moved(as[corev1.Pod](old), as[corev1.Pod](now)) },
		DeleteFunc: func(old any) {
			if gone, ok := old.(cache.DeletedFinalStateUnknown); ok {
				old = gone.Obj
			}
			moved(as[corev1.Pod](old), nil)
		},
	}
	if _, err := c.named["pods"].AddEventHandler(pods); err != nil {
		return nil, fmt.Errorf("informer of Pods: %w", err)
	}
	for name, i := range c.named {
		if _, err := i.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("informer of %s: %w", name, err)
		}
	}
	return c, nil
}

// ownClient reads and writes weft's own kinds.
func ownClient(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("scheme: %w", err)
	}
	config = rest.CopyConfig(config)
	gv := v1alpha1.GroupVersion
	config.GroupVersion, config.APIPath = &gv, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client of weft's kinds: %w", err)
	}
	return client, nil
}

func informerOf(client rest.Interface, resource string, kind runtime.Object) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything()), kind, 0,
		cache.Indexers{})
}

func (c *caches) start(ctx context.Context) {
	for _, i := range c.named {
		go i.RunWithContext(ctx)
	}
}

// synced says which kind was not listed yet; nil for none.
func (c *caches) synced() error {
	for _, name := range slices.Sorted(maps.Keys(c.named)) {
		if err := c.has(name); err != nil {
			return err
		}
	}
	return nil
}

// has says whether a kind was listed.
func (c *caches) has(name string) error {
	if !c.named[name].HasSynced() {
		return fmt.Errorf("%s are not listed yet", name)
	}
	return nil
}

// wait waits until every kind was listed, and says which is missing.
func (c *caches) wait(ctx context.Context, log *slog.Logger) error {
	const tell = 10 * time.Second
	began, told := time.Now(), time.Now()
	for {
		missing := c.synced()
		if missing == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		if time.Since(told) >= tell {
			told = time.Now()
			log.Warn("waiting: are weft's custom resources and its role installed?", "for", missing, "since", time.Since(began).Round(time.Second))
		}
	}
}

// catchUp waits until the informers show all that the API has now: what another controller wrote before it lost its lease is a
// decision that stands.
func (c *caches) catchUp(ctx context.Context, client kubernetes.Interface) error {
	managed := metav1.ListOptions{LabelSelector: kube.LabelManaged + "=true"}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, managed)
	if err != nil {
		return err
	}
	claims, err := client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, managed)
	if err != nil {
		return err
	}
	const longest = time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("the watches of Pods and resource claims are more than %v behind", longest))
	defer cancel()
	for !c.shows(pods.Items, claims.Items) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
	return nil
}

// shows says whether the informers have objects at least as they are listed. How far their stores have come is asked before what they hold:
// what is put there in between is not taken for gone.
func (c *caches) shows(pods []corev1.Pod, claims []resourcev1.ResourceClaim) bool {
	at := c.come("pods")
	for i := range pods {
		seen, err := c.pods.Pods(pods[i].Namespace).Get(pods[i].Name)
		if !shown(seen, err == nil, &pods[i], at) {
			return false
		}
	}
	at = c.come("resourceclaims")
	for i := range claims {
		seen, err := c.claims.ResourceClaims(claims[i].Namespace).Get(claims[i].Name)
		if !shown(seen, err == nil, &claims[i], at) {
			return false
		}
	}
	return true
}

// shown says whether a store that has come to a version shows an object as it is listed, or what came after it: a later one of its name, or
// none.
func shown(seen metav1.Object, there bool, listed metav1.Object, at uint64) bool {
	if !there {
		return at > version(listed)
	}
	return version(seen) >= version(listed)
}

// come is the version that the store of an informer has come to. What the informer itself has received may be ahead of it.
func (c *caches) come(kind string) uint64 {
	return version(&metav1.ObjectMeta{ResourceVersion: c.named[kind].GetStore().LastStoreSyncResourceVersion()})
}

// cluster is all that the informers show.
func (c *caches) cluster(now time.Time) (*queue.Cluster, error) {
	s := &queue.Cluster{Now: now}
	var err error
	if s.Nodes, err = c.nodes.List(labels.Everything()); err != nil {
		return nil, err
	}
	if s.Pods, err = c.pods.List(labels.Everything()); err != nil {
		return nil, err
	}
	if s.Slices, err = c.slices.List(labels.Everything()); err != nil {
		return nil, err
	}
	if s.Claims, err = c.claims.List(labels.Everything()); err != nil {
		return nil, err
	}
	s.Policy, s.Profiles = c.policy(), c.listProfiles()
	return s, nil
}

// policy is the one in force; nil for none.
func (c *caches) policy() *v1alpha1.SharingPolicy {
	o, ok, err := c.policies.GetByKey(v1alpha1.PolicyName)
	p, is := o.(*v1alpha1.SharingPolicy)
	if err != nil || !ok || !is || c.check != nil && len(c.check(&p.Spec)) > 0 {
		return nil
	}
	return p
}

func (c *caches) listProfiles() []*v1alpha1.WorkloadProfile {
	var list []*v1alpha1.WorkloadProfile
	for _, o := range c.profiles.List() {
		if p, ok := o.(*v1alpha1.WorkloadProfile); ok {
			list = append(list, p)
		}
	}
	return list
}

// profile is one of a name, nil for none.
func (c *caches) profile(name types.NamespacedName) *v1alpha1.WorkloadProfile {
	o, _, err := c.profiles.GetByKey(name.String())
	if p, is := o.(*v1alpha1.WorkloadProfile); err == nil && is {
		return p
	}
	return nil
}

// pod is a Pod as the informers show it, nil for none of that UID.
func (c *caches) pod(name types.NamespacedName, uid types.UID) *corev1.Pod {
	p, err := c.pods.Pods(name.Namespace).Get(name.Name)
	if err != nil || p.UID != uid {
		return nil
	}
	return p
}
