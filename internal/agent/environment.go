package agent

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Environment is the environment of a program of an allocation: its own, with libweft.so of a folder preloaded after what it
// preloads itself, and with what the allocation's folder names.
func Environment(own []string, libraries, allocation string) ([]string, error) {
	environment := slices.Clone(own)
	set := func(name string, value func(old string) string) {
		prefix := name + "="
		i := slices.IndexFunc(environment, func(v string) bool { return strings.HasPrefix(v, prefix) })
		if i < 0 {
			environment = append(environment, prefix+value(""))
			return
		}
		environment[i] = prefix + value(environment[i][len(prefix):])
	}
	library := filepath.Join(libraries, "libweft.so")
	set("LD_PRELOAD", func(own string) string {
		if slices.Contains(strings.FieldsFunc(own, func(r rune) bool { return r == ':' || r == ' ' }), library) {
			return own
		}
		return strings.TrimPrefix(own+":"+library, ":")
	})
	variables, err := Variables(allocation)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		value := variables[name]
		set(name, func(own string) string {
			if name == "LD_LIBRARY_PATH" && own != "" {
				return value + ":" + own
			}
			return value
		})
	}
	return environment, nil
}

// Variables are what a program of an allocation needs in its environment beside the preloaded library.
func Variables(allocation string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(allocation, EnvName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	variables := map[string]string{"WEFT_SOCKET": filepath.Join(allocation, SocketName)}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		variables[name] = value
	}
	return variables, nil
}
