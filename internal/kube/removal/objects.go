package removal

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"weft.dev/weft/internal/kube"
)

// Stage is a part of weft that goes at once, in this order. After each of them the cluster works, with what is still there.
type Stage int

// The stages.
const (
	Door        Stage = iota // who lets new Pods come: controller and device classes
	Webhooks                 // with the controller gone they refuse Pods that opt in
	Queue                    // Pods that wait behind weft's gate
	Driver                   // the agents
	Traces                   // what agents and controller made: slices, conditions of nodes, the lease
	Guards                   // admission policies
	Definitions              // with the policies and profiles that are of them
	Parts                    // the rest in weft's namespace
	Rights                   // roles of the whole cluster
	stages
)

// String is how people read it.
func (s Stage) String() string {
	return [...]string{"controller and device classes", "webhooks", "waiting Pods", "agents", "resource slices and lease", "admission policies", "CRDs",
		"objects of its namespace", "cluster roles"}[s]
}

// Object is one of weft's objects. A cluster has one weft, so their names are fixed.
type Object struct {
	Resource   schema.GroupVersionResource
	Kind       string
	Name       string
	Namespaced bool // in weft's namespace
	Stage      Stage
}

// String is the object as kubectl names it: "daemonset.apps/weft-agent".
func (o Object) String() string {
	return (schema.GroupResource{Group: o.Resource.Group, Resource: o.Resource.Resource}).String() + "/" + o.Name
}

// in is what is in weft's namespace, or of the whole cluster.
func in(namespaced bool, s Stage, group, resource, kind string, names ...string) []Object {
	var list []Object
	for _, name := range names {
		list = append(list, Object{schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, kind, name, namespaced, s})
	}
	return list
}

// Objects are all of weft's whose names are known beforehand, in the order in which they go.
func Objects() []Object {
	const own, whole = true, false
	const admission, rbac = "admissionregistration.k8s.io", "rbac.authorization.k8s.io"
	const controller, agent = kube.Controller, "weft-agent"
	guards := []string{"weft-pods", "weft-claims", "weft-agents", "weft-gangs"}
	var list []Object
	for _, part := range [][]Object{
		in(own, Door, "apps", "deployments", "Deployment", controller), // first: it would place Pods that can have nothing any more
		in(whole, Door, "resource.k8s.io", "deviceclasses", "DeviceClass", kube.NativeClass, kube.ShareClass),
		in(whole, Webhooks, admission, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "weft"),
		in(whole, Webhooks, admission, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "weft"),
		in(own, Driver, "apps", "daemonsets", "DaemonSet", agent),
		in(own, Traces, "coordination.k8s.io", "leases", "Lease", controller),
		in(whole, Guards, admission, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", guards...),
		in(whole, Guards, admission, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", guards...),
		in(whole, Definitions, "apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", "sharingpolicies.weft.dev",
			"workloadprofiles.weft.dev"),
		in(own, Parts, "policy", "poddisruptionbudgets", "PodDisruptionBudget", controller),
		in(own, Parts, "", "services", "Service", "weft-webhook"),
		in(own, Parts, "", "secrets", "Secret", "weft-webhook"),
		in(own, Parts, "", "configmaps", "ConfigMap", kube.Learned),
		in(own, Parts, "networking.k8s.io", "networkpolicies", "NetworkPolicy", controller, agent),
		in(own, Parts, rbac, "rolebindings", "RoleBinding", controller),
		in(own, Parts, rbac, "roles", "Role", controller),
		in(own, Parts, "", "serviceaccounts", "ServiceAccount", controller, agent),
		// The bindings say in which namespace weft is, so they go when nothing of it is there any more.
		in(whole, Rights, rbac, "clusterroles", "ClusterRole", controller, agent, "weft-view", "weft-edit"),
		in(whole, Rights, rbac, "clusterrolebindings", "ClusterRoleBinding", agent, controller),
	} {
		list = append(list, part...)
	}
	return list
}
