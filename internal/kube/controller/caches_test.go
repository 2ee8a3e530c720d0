package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// ahead is an informer that has received more than its store shows.
type ahead struct {
	cache.SharedIndexInformer
	store    cache.Indexer
	received string
}

func (a ahead) GetStore() cache.Store { return a.store }

func (a ahead) LastSyncResourceVersion() string { return a.received }

// TestShows: a controller that takes over waits for what it does not see yet. A Pod that the informer has received, and its store does not
// show, is not taken for one that is gone, nor the one that had its name before for the one that came after.
func TestShows(t *testing.T) {
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	informer := ahead{store: store, received: "50"}
	c := &caches{pods: corelisters.NewPodLister(store), named: map[string]cache.SharedIndexInformer{"pods": informer, "resourceclaims": informer}}
	pod := func(uid types.UID, version string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "a", UID: uid, ResourceVersion: version}}
	}
	old, listed, next := pod("u1", "10"), pod("u2", "20"), pod("u3", "40")
	for _, step := range []struct {
		what   string
		change func() error
		want   bool
	}{
		{"the one before it", func() error { return store.Add(&old) }, false},
		{"that one is gone", func() error { store.Bookmark("15"); return store.Delete(&old) }, false},
		{"itself", func() error { return store.Add(&listed) }, true},
		{"it is gone", func() error { defer store.Bookmark("30"); return store.Delete(&listed) }, true},
		{"the one after it", func() error { return store.Add(&next) }, true},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		if got := c.shows([]corev1.Pod{listed}, nil); got != step.want {
			t.Errorf("%s: it is shown: %v", step.what, got)
		}
	}
}
