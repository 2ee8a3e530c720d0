package v1alpha1

import (
	"cmp"
	"slices"
)

// In is the terms that hold in a namespace: its own where it states them, else the defaults. A nil policy says nothing.
func (s *SharingPolicySpec) In(namespace string) Terms {
	if s == nil {
		return Terms{}
	}
	i := slices.IndexFunc(s.Namespaces, func(n NamespaceTerms) bool { return n.Name == namespace })
	if i < 0 {
		return s.Defaults
	}
	return s.Namespaces[i].over(s.Defaults)
}

// over fills what a namespace leaves out from the defaults.
func (t Terms) over(d Terms) Terms {
	return Terms{
		Floor: cmp.Or(t.Floor, d.Floor), MinFloor: cmp.Or(t.MinFloor, d.MinFloor), MaxFloor: cmp.Or(t.MaxFloor, d.MaxFloor),
		Class: cmp.Or(t.Class, d.Class), Quota: cmp.Or(t.Quota, d.Quota), Weight: cmp.Or(t.Weight, d.Weight),
	}
}
