package driver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"weft.dev/weft/internal/kube/driver/portion"
)

// teller writes Events about the node and its Pods.
type teller struct {
	name        string
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
}

func newTeller(ctx context.Context, client kubernetes.Interface, node string) *teller {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &teller{node, b, b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "weft-agent", Host: node})}
}

func (t *teller) close() { t.broadcaster.Shutdown() }

// node says something of the node. Events of Nodes have its name in place of a UID, as the kubelet's have.
func (t *teller) node(kind, reason, text string) {
	t.recorder.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: t.name, UID: types.UID(t.name)}, kind, reason, text)
}

// pod says something of a Pod.
func (t *teller) pod(p portion.Object, kind, reason, text string) {
	t.recorder.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}, kind, reason, text)
}
