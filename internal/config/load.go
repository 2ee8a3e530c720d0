package config

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"weft.dev/weft/internal/trace"
)

// MachineFile is the file of the machine.
const MachineFile = "/etc/weft/config.yaml"

// Sources are where a configuration comes from.
type Sources struct {
	Machine     string            // path of the machine's file; "" for none
	User        string            // path of the user's file; "" for none
	Environment []string          // NAME=VALUE
	Flags       map[string]string // by key, those that were given
}

// Standard is where the configuration of this process comes from. WEFT_CONFIG names another file of the machine.
func Standard(flags map[string]string) Sources {
	s := Sources{Machine: cmp.Or(os.Getenv("WEFT_CONFIG"), MachineFile), Environment: os.Environ(), Flags: flags}
	if dir, err := os.UserConfigDir(); err == nil {
		s.User = filepath.Join(dir, "weft", "config.yaml")
	}
	return s
}

// Loaded is a configuration with the origin of each key: "default", a file with its line, a variable or a flag. Limits are
// keys such as "users.ana.weight".
type Loaded struct {
	Config
	Origin map[string]string
	Read   []string // files that were there
}

// Load reads all sources; a file that is not there sets nothing. The error is trace.Errors where a source says what it may
// not, with the place and the remedy of each fault.
func Load(s Sources) (*Loaded, error) {
	l := &Loaded{Config: standard(), Origin: map[string]string{}}
	for _, name := range Keys() {
		l.Origin[name] = "default"
	}
	var faults trace.Errors
	for _, path := range []string{s.Machine, s.User} {
		more, err := l.file(path, path == s.Machine)
		if err != nil {
			return nil, err
		}
		faults = append(faults, more...)
	}
	faults = append(append(faults, l.environment(s.Environment)...), l.flags(s.Flags)...)
	if len(faults) > 0 {
		return nil, faults
	}
	return l, nil
}

// file reads one file.
func (l *Loaded) file(path string, machine bool) (trace.Errors, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	text, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err != nil {
		return nil, err
	}
	l.Read = append(l.Read, path)
	r := &reader{into: l, file: path, machine: machine}
	r.read(text)
	return r.faults, nil
}

func (l *Loaded) environment(environment []string) trace.Errors {
	var faults trace.Errors
	for i := range keys {
		k := &keys[i]
		for _, variable := range environment {
			value, is := strings.CutPrefix(variable, k.variable()+"=")
			if !is || value == "" {
				continue // an empty variable is none
			}
			if f := k.set(&l.Config, fromHere(k, value)); f != nil {
				faults = append(faults, &trace.Error{Code: "bad_value", File: "environment", Column: k.variable(), Value: value, Message: f.message, Why: f.why, Fix: f.fix})
				continue
			}
			l.Origin[k.name] = k.variable()
		}
	}
	return faults
}

// fromHere is a value of this process: a folder is seen from where it runs.
func fromHere(k *key, value string) string {
	if k.name == "state" {
		if path, err := filepath.Abs(value); err == nil {
			return path
		}
	}
	return value
}

func (l *Loaded) flags(flags map[string]string) trace.Errors {
	var faults trace.Errors
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		flag := strings.ReplaceAll(name, "_", "-")
		k := keyNamed(name)
		if k == nil {
			faults = append(faults, &trace.Error{Code: "bad_flag", File: "command line", Column: flag, Message: "no setting is called " + name})
			continue
		}
		if f := k.set(&l.Config, fromHere(k, flags[name])); f != nil {
			faults = append(faults, &trace.Error{Code: "bad_flag", File: "command line", Column: flag, Value: flags[name], Message: f.message, Why: f.why, Fix: f.fix})
			continue
		}
		l.Origin[name] = "--" + flag
	}
	return faults
}

// Setting is one key that is in force, as it is shown.
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// Settings lists what is in force: the keys in their order, then administrators, then the limits of everybody and of users
// in order of their names.
func (l *Loaded) Settings() []Setting {
	list := make([]Setting, 0, len(keys)+1)
	for i := range keys {
		list = append(list, Setting{keys[i].name, keys[i].get(&l.Config), l.Origin[keys[i].name]})
	}
	list = append(list, Setting{administratorsKey, strings.Join(l.Administrators, ", "), l.Origin[administratorsKey]})
	users := slices.SortedFunc(maps.Keys(l.Users), func(a, b string) int {
		if first := cmp.Compare(boolInt(b == everybody), boolInt(a == everybody)); first != 0 {
			return first
		}
		return cmp.Compare(a, b)
	})
	for _, user := range users {
		limits := l.Users[user]
		names, values := limits.shown()
		for i, name := range names {
			key := usersKey + "." + user + "." + name
			list = append(list, Setting{key, values[i], l.Origin[key]})
		}
	}
	return list
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
