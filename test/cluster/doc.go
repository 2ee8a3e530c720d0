// Package cluster brings up a real Kubernetes cluster for tests: etcd, the API server, the controller manager, the scheduler,
// containerd and the kubelet as one node, and kwok for nodes that exist in the API only. It builds all of them from their Go
// modules, once, and makes its own images, so that it needs no registry.
//
// Up brings up the whole, as root, one on each machine. UpControlPlane brings up etcd and the API server, by choice with what
// else acts in the API, for anybody and as often as one likes. Where neither is possible, they return an Unavailable.
package cluster
