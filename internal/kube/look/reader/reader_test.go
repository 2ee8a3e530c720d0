package reader

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// access is a kubeconfig with two contexts.
const access = `apiVersion: v1
kind: Config
current-context: lab
contexts:
- {name: lab, context: {cluster: one, user: me, namespace: ml}}
- {name: other, context: {cluster: two, user: me}}
- {name: broken, context: {cluster: none, user: me}}
clusters:
- {name: one, cluster: {server: "https://10.0.0.1:6443"}}
- {name: two, cluster: {server: "https://10.0.0.2:6443"}}
users:
- {name: me, user: {token: secret}}
`

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpen(t *testing.T) {
	file := write(t, "config", access)
	missing := filepath.Join(t.TempDir(), "missing")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct {
		what, env string
		o         Options
		want      Reader // where there is access
		none      bool   // it is nowhere
		fault     string
	}{
		{"a file", missing, Options{Kubeconfig: file}, Reader{Server: "https://10.0.0.1:6443", Context: "lab", Namespace: "ml"}, false, ""},
		{"a context", missing, Options{Kubeconfig: file, Context: "other"}, Reader{Server: "https://10.0.0.2:6443", Context: "other", Namespace: "default"}, false, ""},
		{"the environment", file, Options{}, Reader{Server: "https://10.0.0.1:6443", Context: "lab", Namespace: "ml"}, false, ""},
		{"the second of two files", missing + ":" + file, Options{}, Reader{Server: "https://10.0.0.1:6443", Context: "lab", Namespace: "ml"}, false, ""},
		{"no file", file, Options{Kubeconfig: missing}, Reader{}, true, missing},
		{"nothing", missing, Options{}, Reader{}, true, missing},
		{"an empty file", write(t, "empty", ""), Options{}, Reader{}, false, "it names no cluster"},
		{"no such context", file, Options{Context: "lob"}, Reader{}, false, `context "lob" does not exist`},
		{"a context without its cluster", file, Options{Context: "broken"}, Reader{}, false, "its context names one that is not there"},
		{"no kubeconfig", write(t, "text", "apiVersion: ["), Options{}, Reader{}, false, "text"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Setenv("KUBECONFIG", c.env)
			r, err := Open(c.o)
			var fault *AccessError
			if c.fault != "" {
				if !errors.As(err, &fault) || fault.None != c.none || !strings.Contains(err.Error(), c.fault) {
					t.Fatalf("%v, want %q", err, c.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.Server != c.want.Server || r.Context != c.want.Context || r.Namespace != c.want.Namespace {
				t.Errorf("%+v, want %+v", r, c.want)
			}
			if found := Found(); found != (c.env != missing) {
				t.Errorf("found %t", found)
			}
		})
	}
}

// TestListReadsAllPages: no object is lost or read twice, also where a page expires while others are read.
func TestListReadsAllPages(t *testing.T) {
	const pages = 4
	for expires := range pages + 1 { // this page, once; none at the end
		expired := false
		var got []*corev1.Pod
		read := func(o metav1.ListOptions) ([]corev1.Pod, metav1.ListMeta, error) {
			at := 0
			if _, err := fmt.Sscanf(o.Continue, "%d", &at); o.Continue != "" && err != nil {
				t.Fatal(err)
			}
			if at == expires && at > 0 && !expired {
				expired = true
				return nil, metav1.ListMeta{}, apierrors.NewResourceExpired("too old")
			}
			if o.Limit == 0 { // whole
				return make([]corev1.Pod, 2*pages), metav1.ListMeta{}, nil
			}
			meta := metav1.ListMeta{}
			if at+1 < pages {
				meta.Continue = fmt.Sprint(at + 1)
			}
			return make([]corev1.Pod, 2), meta, nil
		}
		if err := list(t.Context(), &Reader{}, kind{"pods", false}, &got, read); err != nil {
			t.Fatal(err)
		}
		if len(got) != 2*pages {
			t.Errorf("page %d expires: %d objects, want %d", expires, len(got), 2*pages)
		}
		seen := slices.Clone(got)
		slices.SortFunc(seen, func(a, b *corev1.Pod) int { return strings.Compare(fmt.Sprintf("%p", a), fmt.Sprintf("%p", b)) })
		if len(slices.Compact(seen)) != len(got) {
			t.Error("an object is there twice")
		}
	}
}

func TestFaults(t *testing.T) {
	r := &Reader{Server: "https://x"}
	resource := schema.GroupResource{Resource: "pods"}
	fail := func(k kind, err error) error {
		var got []*corev1.Pod
		return list(t.Context(), r, k, &got, func(metav1.ListOptions) ([]corev1.Pod, metav1.ListMeta, error) { return nil, metav1.ListMeta{}, err })
	}
	needed, optional := kind{"pods", false}, kind{"workloadprofiles.weft.dev", true}
	var forbidden *ForbiddenError
	if err := fail(needed, apierrors.NewForbidden(resource, "", errors.New("no"))); !errors.As(err, &forbidden) || forbidden.Unknown || forbidden.Verb != "list" || forbidden.Resource != "pods" {
		t.Error(err)
	}
	if err := fail(optional, apierrors.NewUnauthorized("who")); !errors.As(err, &forbidden) || !forbidden.Unknown {
		t.Error(err)
	}
	var unreachable *UnreachableError
	for _, cause := range []error{errors.New("connection refused"), apierrors.NewServiceUnavailable("starting"), apierrors.NewTimeoutError("late", 1)} {
		if err := fail(needed, cause); !errors.As(err, &unreachable) || unreachable.Server != "https://x" {
			t.Error(err)
		}
	}
	missing := apierrors.NewNotFound(resource, "")
	if err := fail(optional, missing); err != nil {
		t.Errorf("a kind that the cluster may lack: %v", err)
	}
	if err := fail(needed, missing); err == nil || errors.As(err, &unreachable) && errors.Is(unreachable, missing) {
		t.Errorf("a kind that every cluster has: %v", err)
	}
	if err := fail(needed, apierrors.NewGenericServerResponse(http.StatusTeapot, "list", resource, "", "tea", 0, false)); err == nil || !strings.Contains(err.Error(), "list pods at https://x") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var got []*corev1.Pod
	err := list(ctx, r, needed, &got, func(metav1.ListOptions) ([]corev1.Pod, metav1.ListMeta, error) {
		return nil, metav1.ListMeta{}, errors.New("canceled")
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("of an end: %v", err)
	}
	if err := first([]error{nil, context.Canceled, missing}); !errors.Is(err, missing) {
		t.Errorf("%v hides its cause", err)
	}
}
