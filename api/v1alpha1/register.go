package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of weft.
const Group = "weft.dev"

// GroupVersion is the group with the version of this package.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// Kind is a kind of this package, such as "SharingPolicy".
func Kind(name string) schema.GroupVersionKind { return GroupVersion.WithKind(name) }

// AddToScheme makes a scheme know the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &SharingPolicy{}, &SharingPolicyList{}, &WorkloadProfile{}, &WorkloadProfileList{}, &Worker{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
