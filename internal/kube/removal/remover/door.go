package remover

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"weft.dev/weft/internal/kube/removal"
)

// door is what was seen of the objects that let Pods come, to make them again.
type door struct {
	closed bool // one of them was deleted here
	short  bool // one of them was missing from the beginning: somebody else deleted it
	looked time.Time
	seen   []leaf
}

type leaf struct {
	object removal.Object
	was    *unstructured.Unstructured
}

// note remembers an object as it was when it was first seen.
func (d *door) note(o removal.Object, got *unstructured.Unstructured) {
	for _, l := range d.seen {
		if l.object == o {
			return
		}
	}
	d.seen = append(d.seen, leaf{o, got})
}

// open makes what was deleted anew, whether or not the context has ended. One that is still being deleted is waited for.
func (r *Remover) open(ctx context.Context, namespace string) error {
	if !r.door.closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	for _, l := range r.door.seen {
		if err := r.again(ctx, namespace, l); err != nil {
			return fmt.Errorf("%s is not there again, so that no new Pod gets a GPU: install weft again: %w", l.object, err)
		}
	}
	r.door.closed = false
	return nil
}

// errGoing is an object that is being deleted.
var errGoing = errors.New("it is still being deleted")

// again makes an object anew, unless it is there.
func (r *Remover) again(ctx context.Context, namespace string, l leaf) error {
	at := r.of(l.object, namespace)
	for {
		_, err := at.Create(ctx, fresh(l.was), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			var got *unstructured.Unstructured
			if got, err = at.Get(ctx, l.object.Name, metav1.GetOptions{}); err == nil && got.GetDeletionTimestamp() != nil {
				err = errGoing
			}
		}
		if err == nil || !errors.Is(err, errGoing) && !apierrors.IsNotFound(err) {
			return r.reader.Fault("create", l.object.Resource.GroupResource().String(), err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(often):
		}
	}
}

// fresh is an object without what the API server gave it.
func fresh(was *unstructured.Unstructured) *unstructured.Unstructured {
	o := was.DeepCopy()
	for _, key := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink", "deletionTimestamp",
		"deletionGracePeriodSeconds", "finalizers"} {
		unstructured.RemoveNestedField(o.Object, "metadata", key)
	}
	unstructured.RemoveNestedField(o.Object, "status")
	return o
}
