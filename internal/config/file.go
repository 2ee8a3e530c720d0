package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"weft.dev/weft/internal/spelling"
	"weft.dev/weft/internal/trace"
)

// mostBytes is how large a file may be: thousands of users.
const mostBytes = 1 << 20

// reader reads one file into a configuration.
type reader struct {
	into    *Loaded
	file    string
	machine bool // it is the machine's file: it may limit users
	faults  trace.Errors
}

func (r *reader) refuse(n *yaml.Node, code, column, value string, f fault) {
	line := 0
	if n != nil {
		line = n.Line
	}
	r.faults = append(r.faults, &trace.Error{Code: code, File: r.file, Line: line, Column: column, Value: value, Message: f.message, Why: f.why, Fix: f.fix})
}

// yamlLine finds the line in an error of the parser.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// read reads the whole file.
func (r *reader) read(text []byte) {
	if len(text) > mostBytes {
		r.refuse(nil, "too_large", "", "", fault{"the file is larger than 1 MiB", "", ""})
		return
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, more yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return // an empty file sets nothing
	}
	if err == nil {
		if err = decoder.Decode(&more); err == nil {
			r.refuse(&more, "more_documents", "", "", fault{"a second document", "a configuration is one", "remove the line ---"})
			return
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		at := &yaml.Node{}
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			at.Line, _ = strconv.Atoi(m[1]) // 0 where it names none
		}
		r.refuse(at, "syntax", "", "", fault{"not YAML: " + yamlLine.ReplaceAllString(err.Error(), ""), "", "a key, a colon, a blank and a value on each line"})
		return
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return
	}
	r.mapping(root, "", Keys(), func(name, value *yaml.Node) { r.setting(name, value) })
}

// mapping visits the entries of a mapping. Names that are not known (nil: all are) or repeat are refused.
func (r *reader) mapping(n *yaml.Node, of string, known []string, visit func(name, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		what := cmp.Or(of, "the file")
		r.refuse(n, "not_a_mapping", of, n.Value, fault{what + " is no list of keys with values", "", example(of)})
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		path := strings.TrimPrefix(of+"."+name.Value, ".")
		switch first, again := lines[name.Value]; {
		case name.Kind != yaml.ScalarNode:
			r.refuse(name, "bad_key", of, "", fault{"a key that is no name", "", example(of)})
			continue
		case again:
			r.refuse(name, "duplicate_key", path, "", fault{fmt.Sprintf("%s is there twice", path), fmt.Sprintf("line %d has it, too", first), "remove one"})
			continue
		}
		lines[name.Value] = name.Line
		if known != nil && !slices.Contains(known, name.Value) {
			r.unknown(name, path, known)
			continue
		}
		visit(name, value)
	}
}

func (r *reader) unknown(name *yaml.Node, path string, known []string) {
	fix := "one of " + strings.Join(known, ", ")
	if near := spelling.Nearest(name.Value, known); near != "" {
		fix = near
	}
	r.refuse(name, "unknown_key", path, name.Value, fault{fmt.Sprintf("unknown key %q", path), "", fix})
}

// setting reads one of the file's keys.
func (r *reader) setting(name, value *yaml.Node) {
	if k := keyNamed(name.Value); k != nil {
		if r.plain(value, name.Value) {
			if f := k.set(&r.into.Config, value.Value); f != nil {
				r.refuse(value, "bad_value", name.Value, value.Value, *f)
				return
			}
			r.from(name.Value, value)
		}
		return
	}
	if !r.machine {
		r.refuse(name, "not_here", name.Value, "", fault{name.Value + " belongs into the machine's file",
			"a user does not decide on the limits of users", "move it to " + MachineFile})
		return
	}
	if name.Value == administratorsKey {
		r.administrators(value)
		return
	}
	r.mapping(value, usersKey, nil, func(user, limits *yaml.Node) { r.user(user.Value, limits) })
}

func (r *reader) from(key string, n *yaml.Node) {
	r.into.Origin[key] = fmt.Sprintf("%s:%d", r.file, n.Line)
}

// plain says whether a node is one value.
func (r *reader) plain(n *yaml.Node, path string) bool {
	if n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		return true
	}
	r.refuse(n, "not_a_value", path, "", fault{path + " is not one value", "", example(path)})
	return false
}

func (r *reader) administrators(list *yaml.Node) {
	if list.Kind != yaml.SequenceNode {
		r.refuse(list, "not_a_list", administratorsKey, list.Value, fault{"administrators is no list of users", "", example(administratorsKey)})
		return
	}
	r.into.Administrators = nil
	for _, n := range list.Content {
		if r.plain(n, administratorsKey) && r.isUser(n, administratorsKey, n.Value) {
			r.into.Administrators = append(r.into.Administrators, n.Value)
		}
	}
	r.from(administratorsKey, list)
}

// isUserName says whether a text is what useradd takes for one, or what directories add.
func isUserName(name string) bool {
	return name != "" && len(name) <= longestUser && !strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !strings.ContainsRune(`_.@+\-`, r)
	})
}

// longestUser is the longest name of a user, in bytes.
const longestUser = 256

func (r *reader) isUser(n *yaml.Node, path, name string) bool {
	if !isUserName(name) {
		r.refuse(n, "bad_user", path, name, fault{fmt.Sprintf("%q is no name of a user", name), "", "as id -un writes it"})
		return false
	}
	return true
}

func (r *reader) user(name string, limits *yaml.Node) {
	path := usersKey + "." + name
	if !r.isUser(limits, usersKey, name) {
		return
	}
	l := Limits{}
	r.mapping(limits, path, limitNames(), func(key, value *yaml.Node) {
		at := path + "." + key.Value
		if !r.plain(value, at) {
			return
		}
		if f := l.set(key.Value, value.Value); f != nil {
			r.refuse(value, "bad_value", at, value.Value, *f)
			return
		}
		r.from(at, value)
	})
	r.into.Users[name] = l
}
