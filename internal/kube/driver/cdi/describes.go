package cdi

import "sigs.k8s.io/yaml"

// describes says whether a file is of a kind and has a device of a name.
func describes(text []byte, kind, name string) bool {
	var f file
	if yaml.Unmarshal(text, &f) != nil || f.Kind != kind {
		return false
	}
	for _, d := range f.Devices {
		if d.Name == name {
			return true
		}
	}
	return false
}
