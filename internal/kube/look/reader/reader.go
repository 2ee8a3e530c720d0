// Package reader reads a cluster once, as whoever asks may read it: with the access that kubectl would use.
package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/kube/queue"
)

// Options say which cluster is meant.
type Options struct {
	Kubeconfig string // a file; "" for $KUBECONFIG, ~/.kube/config, or that of the Pod this runs in
	Context    string // of the file; "" for the current one
	Agent      string // name of who asks, for the API server's log
}

// Reader has access to one cluster.
type Reader struct {
	Server    string // address of the API server
	Context   string // "" in a Pod
	Namespace string // that is meant where none is named

	config *rest.Config
	client kubernetes.Interface
	own    rest.Interface // of weft's own kinds
}

// Config is the access itself, for who writes.
func (r *Reader) Config() *rest.Config { return rest.CopyConfig(r.config) }

// Times of asking.
const (
	answers = 30 * time.Second // for one page
	page    = 500              // objects
)

// Open finds the access and asks nothing yet. The error is an AccessError where there is none.
func Open(o Options) (*Reader, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	rules.WarnIfAllMissing = false
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, accessError(o, rules, err)
	}
	r := &Reader{Server: config.Host, Context: o.Context}
	if raw, err := loader.RawConfig(); err == nil {
		r.Context = cmp.Or(r.Context, raw.CurrentContext)
	}
	if r.Namespace, _, err = loader.Namespace(); err != nil {
		return nil, accessError(o, rules, err)
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout, config.UserAgent, config.WarningHandler = -1, answers, o.Agent, rest.NoWarnings{}
	r.config = rest.CopyConfig(config)
	if r.own, err = ownClient(config); err != nil {
		return nil, accessError(o, rules, err)
	}
	config.AcceptContentTypes, config.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
	if r.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, accessError(o, rules, err)
	}
	return r, nil
}

// Found says whether there is any access where nothing else is said.
func Found() bool {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	for _, path := range rules.Precedence {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// AccessError is access that there is none of, or that cannot be used.
type AccessError struct {
	Place string // the file, or the files that were looked for
	None  bool   // there is no such file
	Err   error
}

func (e *AccessError) Error() string { return e.Place + ": " + e.Err.Error() }

func (e *AccessError) Unwrap() error { return e.Err }

// What is wrong with access.
var (
	errNone  = errors.New("no access to a cluster")
	errEmpty = errors.New("it names no cluster, or its context names one that is not there")
)

func accessError(o Options, rules *clientcmd.ClientConfigLoadingRules, err error) error {
	place := cmp.Or(o.Kubeconfig, strings.Join(rules.Precedence, string(filepath.ListSeparator)))
	switch {
	case errors.Is(err, os.ErrNotExist), clientcmd.IsEmptyConfig(err) && o.Kubeconfig == "" && !Found():
		return &AccessError{place, true, errNone}
	case clientcmd.IsEmptyConfig(err):
		return &AccessError{place, false, errEmpty}
	}
	return &AccessError{place, false, err}
}

// ownClient reads weft's own kinds.
func ownClient(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	gv := v1alpha1.GroupVersion
	config.GroupVersion, config.APIPath = &gv, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}

// UnreachableError is an API server that does not answer.
type UnreachableError struct {
	Server string
	Err    error
}

func (e *UnreachableError) Error() string { return e.Server + ": " + e.Err.Error() }

func (e *UnreachableError) Unwrap() error { return e.Err }

// ForbiddenError is a question that whoever asks may not ask.
type ForbiddenError struct {
	Verb, Resource string // "list", "resourceclaims.resource.k8s.io"
	Unknown        bool   // the API server does not know who asks
	Err            error
}

func (e *ForbiddenError) Error() string { return e.Verb + " " + e.Resource + ": " + e.Err.Error() }

func (e *ForbiddenError) Unwrap() error { return e.Err }

// AbsentError is a cluster without weft, or without what weft needs.
type AbsentError struct {
	What string // "DeviceClass share.weft.dev"
	Old  bool   // the cluster is too old for weft
}

func (e *AbsentError) Error() string { return "there is no " + e.What }

// Fault is what an error of the API means.
func (r *Reader) Fault(verb, resource string, err error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return &ForbiddenError{verb, resource, false, err}
	case apierrors.IsUnauthorized(err):
		return &ForbiddenError{verb, resource, true, err}
	case !errors.As(err, &status), apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return &UnreachableError{r.Server, err}
	}
	return fmt.Errorf("%s %s at %s: %w", verb, resource, r.Server, err)
}

// Installed says whether the cluster has weft: an AbsentError where it has not.
func (r *Reader) Installed(ctx context.Context) error {
	_, err := r.client.ResourceV1().DeviceClasses().Get(ctx, kube.ShareClass, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return r.Fault("get", "deviceclasses.resource.k8s.io", err)
	}
	if _, err := r.client.Discovery().ServerResourcesForGroupVersion(resourcev1.SchemeGroupVersion.String()); apierrors.IsNotFound(err) {
		return &AbsentError{"API resource.k8s.io/v1", true}
	}
	return &AbsentError{"DeviceClass " + kube.ShareClass, false}
}

// Read reads all that weft decides on. What the cluster has no kind for is left empty.
func (r *Reader) Read(ctx context.Context, now time.Time) (*look.Cluster, error) {
	c := &look.Cluster{Cluster: queue.Cluster{Now: now}}
	var policies []*v1alpha1.SharingPolicy
	err := together(ctx, func(ctx context.Context) []func() error {
		return []func() error{r.nodes(ctx, c), r.pods(ctx, c), r.namespaces(ctx, c), r.slices(ctx, c), r.claims(ctx, c), r.learned(ctx, c),
			func() error {
				return list(ctx, r, kind{"sharingpolicies.weft.dev", true}, &policies, func(o metav1.ListOptions) ([]v1alpha1.SharingPolicy, metav1.ListMeta, error) {
					var l v1alpha1.SharingPolicyList
					err := r.own.Get().Resource("sharingpolicies").VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(&l)
					return l.Items, l.ListMeta, err
				})
			},
			func() error {
				return list(ctx, r, kind{"workloadprofiles.weft.dev", true}, &c.Profiles, func(o metav1.ListOptions) ([]v1alpha1.WorkloadProfile, metav1.ListMeta, error) {
					var l v1alpha1.WorkloadProfileList
					err := r.own.Get().Resource("workloadprofiles").VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(&l)
					return l.Items, l.ListMeta, err
				})
			}}
	})
	for _, p := range policies {
		if p.Name == v1alpha1.PolicyName {
			c.Policy = p
		}
	}
	return c, err
}

// Uses reads who uses GPUs, and which there are: nodes, Pods, slices and claims.
func (r *Reader) Uses(ctx context.Context) (*look.Cluster, error) {
	c := &look.Cluster{}
	return c, together(ctx, func(ctx context.Context) []func() error {
		return []func() error{r.nodes(ctx, c), r.pods(ctx, c), r.slices(ctx, c), r.claims(ctx, c)}
	})
}

// together reads several lists at once. Where one fails, the others are not read to their ends.
func together(ctx context.Context, lists func(context.Context) []func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reads := lists(ctx)
	errs := make([]error, len(reads))
	var wait sync.WaitGroup
	for i, read := range reads {
		wait.Go(func() {
			if errs[i] = read(); errs[i] != nil {
				cancel()
			}
		})
	}
	wait.Wait()
	return first(errs)
}

func (r *Reader) nodes(ctx context.Context, c *look.Cluster) func() error {
	return func() error {
		return list(ctx, r, kind{"nodes", false}, &c.Nodes, func(o metav1.ListOptions) ([]corev1.Node, metav1.ListMeta, error) {
			l, err := r.client.CoreV1().Nodes().List(ctx, o)
			return l.Items, l.ListMeta, err
		})
	}
}

func (r *Reader) pods(ctx context.Context, c *look.Cluster) func() error {
	return func() error {
		return list(ctx, r, kind{"pods", false}, &c.Pods, func(o metav1.ListOptions) ([]corev1.Pod, metav1.ListMeta, error) {
			l, err := r.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
			return l.Items, l.ListMeta, err
		})
	}
}

func (r *Reader) namespaces(ctx context.Context, c *look.Cluster) func() error {
	return func() error {
		return list(ctx, r, kind{"namespaces", false}, &c.Namespaces, func(o metav1.ListOptions) ([]corev1.Namespace, metav1.ListMeta, error) {
			l, err := r.client.CoreV1().Namespaces().List(ctx, o)
			return l.Items, l.ListMeta, err
		})
	}
}

func (r *Reader) slices(ctx context.Context, c *look.Cluster) func() error {
	return func() error {
		return list(ctx, r, kind{"resourceslices.resource.k8s.io", true}, &c.Slices, func(o metav1.ListOptions) ([]resourcev1.ResourceSlice, metav1.ListMeta, error) {
			l, err := r.client.ResourceV1().ResourceSlices().List(ctx, o)
			return l.Items, l.ListMeta, err
		})
	}
}

func (r *Reader) claims(ctx context.Context, c *look.Cluster) func() error {
	return func() error {
		return list(ctx, r, kind{"resourceclaims.resource.k8s.io", true}, &c.Claims, func(o metav1.ListOptions) ([]resourcev1.ResourceClaim, metav1.ListMeta, error) {
			l, err := r.client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, o)
			return l.Items, l.ListMeta, err
		})
	}
}

// learned reads what was learned of jobs, where whoever asks may: it is of all namespaces.
func (r *Reader) learned(ctx context.Context, c *look.Cluster) func() error {
	return func() error {
		m, err := r.learnedNow(ctx)
		switch {
		case err == nil:
			c.Learned = m
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			return nil
		}
		return r.Fault("get", "configmaps", err)
	}
}

// learnedNow is in the namespace of the controller's account, and nil where that has none.
func (r *Reader) learnedNow(ctx context.Context) (*corev1.ConfigMap, error) {
	binding, err := r.client.RbacV1().ClusterRoleBindings().Get(ctx, kube.Controller, metav1.GetOptions{})
	if err != nil || len(binding.Subjects) == 0 {
		return nil, err
	}
	return r.client.CoreV1().ConfigMaps(binding.Subjects[0].Namespace).Get(ctx, kube.Learned, metav1.GetOptions{})
}

// first is the first error that is no consequence of another.
func first(errs []error) error {
	var canceled error
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		canceled = cmp.Or(canceled, err)
	}
	return canceled
}

// kind is one kind of object.
type kind struct {
	resource string
	optional bool // the cluster may not have it
}

// list reads all pages of a kind. A list whose pages expire while they are read is read anew, whole.
func list[T any](ctx context.Context, r *Reader, k kind, into *[]*T, read func(metav1.ListOptions) ([]T, metav1.ListMeta, error)) error {
	o := metav1.ListOptions{Limit: page}
	for {
		items, meta, err := read(o)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case k.optional && apierrors.IsNotFound(err):
			return nil
		case apierrors.IsResourceExpired(err) && o.Continue != "":
			o, *into = metav1.ListOptions{}, nil
			continue
		case err != nil:
			return r.Fault("list", k.resource, err)
		}
		for i := range items {
			*into = append(*into, &items[i])
		}
		if meta.Continue == "" {
			return nil
		}
		o.Continue = meta.Continue
	}
}
