// Command chart renders charts/weft the way `helm template` does: what `kubectl apply` installs, and what the tests of the chart look
// at. It is a module of its own, so that weft does not depend on Helm.
package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

const usage = "usage: chart CHART [KEY=VALUE...]   the manifest of the chart in namespace weft-system, with the namespace, to stdout"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	values := map[string]any{}
	for _, set := range os.Args[2:] {
		key, value, found := strings.Cut(set, "=")
		if !found {
			fmt.Fprintln(os.Stderr, usage)
			os.Exit(2)
		}
		assign(values, strings.Split(key, "."), read(value))
	}
	text, err := Manifest(os.Args[1], values)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
	if _, err := os.Stdout.Write(text); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// read is a value as `helm --set` takes it: a text, or a list of texts in braces.
func read(value string) any {
	list, opened := strings.CutPrefix(value, "{")
	list, closed := strings.CutSuffix(list, "}")
	if !opened || !closed {
		return value
	}
	values := []any{}
	for _, text := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		values = append(values, text)
	}
	return values
}

// assign sets a value at a path of keys.
func assign(values map[string]any, keys []string, value any) {
	for _, k := range keys[:len(keys)-1] {
		next, ok := values[k].(map[string]any)
		if !ok {
			next = map[string]any{}
			values[k] = next
		}
		values = next
	}
	values[keys[len(keys)-1]] = value
}

// Namespace is where the manifest installs weft.
const Namespace = "weft-system"

// Manifest is the chart as one text for `kubectl apply`, with the namespace that Helm would have made.
func Manifest(folder string, values map[string]any) ([]byte, error) {
	files, err := Render(folder, values)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("# Written by test/chart from charts/weft: `make chart`. Install it with `kubectl apply --server-side -f`.\n")
	b.WriteString("# Agents need folders of their node and see its processes; the controller keeps to Pod Security restricted by itself.\n")
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n  labels: {pod-security.kubernetes.io/enforce: privileged}\n", Namespace)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.SortFunc(names, rank)
	for _, name := range names {
		for _, document := range documents(files[name]) {
			if !isHook(document) {
				fmt.Fprintf(&b, "---\n%s\n", document)
			}
		}
	}
	return b.Bytes(), nil
}

// Hooks is what Helm makes at certain moments and removes again, as one text; `kubectl apply` has none of it.
func Hooks(folder string, values map[string]any) (string, error) {
	files, err := Render(folder, values)
	if err != nil {
		return "", err
	}
	var hooks []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		hooks = append(hooks, slices.DeleteFunc(documents(files[name]), func(d string) bool { return !isHook(d) })...)
	}
	return strings.Join(hooks, "\n---\n") + "\n", nil
}

// isHook says whether a document is one of Helm's hooks.
func isHook(document string) bool { return strings.Contains(document, "\n    helm.sh/hook: ") }

// rank puts definitions first, for what is of their kinds.
func rank(a, b string) int {
	first := func(name string) int {
		if name == "crds.yaml" {
			return 0
		}
		return 1
	}
	if d := first(a) - first(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// documents are the parts of a rendered file that hold anything.
func documents(text string) []string {
	var list []string
	for part := range strings.SplitSeq("\n"+text, "\n---") {
		part = strings.TrimSpace(part)
		if slices.ContainsFunc(strings.Split(part, "\n"), func(line string) bool { return line != "" && !strings.HasPrefix(line, "#") }) {
			list = append(list, part)
		}
	}
	return list
}

// Render is the templates of a chart by their names, rendered for a release of its name in Namespace, on Kubernetes 1.36. values
// go over those of the chart.
func Render(folder string, values map[string]any) (map[string]string, error) {
	c, err := loader.Load(folder)
	if err != nil {
		return nil, fmt.Errorf("load the chart: %w", err)
	}
	caps := common.DefaultCapabilities.Copy()
	caps.KubeVersion = common.KubeVersion{Version: "v1.36.3", Major: "1", Minor: "36"}
	release := common.ReleaseOptions{Name: "weft", Namespace: Namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(c, values, release, caps)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	rendered, err := engine.Render(c, all)
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	files := map[string]string{}
	for name, text := range rendered {
		if ext := path.Ext(name); ext == ".yaml" {
			files[path.Base(name)] = text
		}
	}
	return files, nil
}
