package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

func written(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

const machine = `# of the machine
listen: 127.0.0.1:7070
floor: 0.85
log_limit: 64MiB
administrators: [ana, "ben"]
users:
  default: {weight: 1, max_running: 8}
  carl:
    weight: 2.5
    max_gpus: 2
  dana: {}
`

func TestLaterSourcesWin(t *testing.T) {
	s := Sources{Machine: written(t, "machine.yaml", machine), User: written(t, "user.yaml", "floor: 0.8\nclass: besteffort\n"),
		Environment: []string{"WEFT_CLASS=guaranteed", "WEFT_PRIORITY=", "WEFT_SOCKET=/x", "HOME=/"}, Flags: map[string]string{"priority": "70"}}
	l, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{Listen: "127.0.0.1:7070", Floor: 0.8, Class: box.Guaranteed, Priority: 70, LogLimit: 64 * unit.MiB,
		Administrators: []string{"ana", "ben"}, Users: map[string]Limits{"default": {Weight: 1, MaxRunning: 8}, "carl": {Weight: 2.5, MaxGPUs: 2}, "dana": {}}}
	if diff := cmp.Diff(want, l.Config); diff != "" {
		t.Error(diff)
	}
	var shown []string
	for _, x := range l.Settings() {
		shown = append(shown, strings.ReplaceAll(strings.ReplaceAll(x.Key+" | "+x.Value+" | "+x.Origin, s.Machine, "M"), s.User, "U"))
	}
	if diff := cmp.Diff([]string{"listen | 127.0.0.1:7070 | M:2", "state |  | default", "floor | 0.8 | U:1", "class | guaranteed | WEFT_CLASS", "priority | 70 | --priority",
		"log_limit | 64 MiB | M:4", "administrators | ana, ben | M:5", "users.default.weight | 1 | M:7", "users.default.max_running | 8 | M:7",
		"users.carl.weight | 2.5 | M:9", "users.carl.max_gpus | 2 | M:10"}, shown); diff != "" {
		t.Error(diff)
	}
	for user, want := range map[string]Limits{"carl": {2.5, 2, 8, 0}, "dana": {1, 0, 8, 0}, "eve": {1, 0, 8, 0}} {
		if got := l.Of(user); got != want {
			t.Errorf("%s may have %+v, want %+v", user, got, want)
		}
	}
	if !l.Administers("ana") || l.Administers("carl") {
		t.Error("administrators are ana and ben")
	}
}

func TestNothingIsConfigured(t *testing.T) {
	l, err := Load(Sources{Machine: filepath.Join(t.TempDir(), "none"), User: written(t, "c", "")})
	if err != nil || l.Listen != "127.0.0.1:7070" || l.Floor != 0.9 || l.Class != box.Burstable || l.Priority != 10 || l.LogLimit != unit.GiB || l.Of("ana").Weight != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	for _, x := range l.Settings() {
		if x.Origin != "default" {
			t.Errorf("%s is of %s", x.Key, x.Origin)
		}
	}
	for _, text := range []string{"# nothing\n", "---\n", "null\n", "\ufefffloor: 0.5\n", "floor: 0.5\r\nclass: burstable\r\n"} {
		if _, err := Load(Sources{Machine: written(t, "c", text)}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct{ text, message, line, fix string }{
		{"flor: 0.9", `unknown key "flor"`, ":1", "floor"},
		{"\n\nanything: 0.9", `unknown key "anything"`, ":3", "one of listen"},
		{"floor: 0.9\nfloor: 0.8", "floor is there twice", ":2", "remove one"},
		{"floor: 90", "floor 90 is outside (0, 1]", ":1", "0.9"},
		{"floor: 90%", "floor 90% is outside (0, 1]", ":1", "0.9"},
		{"floor: 1.2", "floor 1.2 is outside (0, 1]", ":1", "0.9 for 90 %"},
		{"floor: 0", "floor 0 is outside (0, 1]", ":1", "besteffort"},
		{"floor: -1", "floor -1 is outside (0, 1]", ":1", ""},
		{"floor: .nan", "is no number", ":1", ""},
		{"floor: much", `floor "much" is no number`, ":1", ""},
		{"floor: [0.9]", "floor is not one value", ":1", ""},
		{"floor:", "floor is not one value", ":1", ""},
		{"class: best", `unknown class "best"`, ":1", "besteffort"},
		{"class: ''", `unknown class ""`, ":1", "besteffort"},
		{"priority: 101", "priority 101 is not 0 to 100", ":1", ""},
		{"priority: 1.5", "priority 1.5 is not 0 to 100", ":1", ""},
		{"listen: 7070", `listen "7070" is no address`, ":1", "127.0.0.1:7070"},
		{"listen: http://x:80", "is no address", ":1", ""},
		{"listen: a:99999", "is no address", ":1", ""},
		{"state: here", `state "here" is not absolute`, ":1", ""},
		{"log_limit: 5", "log_limit 5 is below 1 MiB", ":1", ""},
		{"log_limit: big", `memory "big"`, ":1", ""},
		{"administrators: ana", "administrators is no list", ":1", "[ana, ben]"},
		{"administrators: [{a: b}]", "administrators is not one value", ":1", ""},
		{"administrators: ['a b']", `"a b" is no name of a user`, ":1", ""},
		{"users: ana", "users is no list of keys", ":1", "weight"},
		{"users: {ana: 2}", "users.ana is no list of keys", ":1", ""},
		{"users:\n  ana:\n    wait: 2", `unknown key "users.ana.wait"`, ":3", "one of weight"},
		{"users:\n  ana:\n    weigth: 2", `unknown key "users.ana.weigth"`, ":3", "weight"},
		{"users: {ana: {weight: 0}}", "weight 0 is outside (0, 1000]", ":1", ""},
		{"users: {ana: {weight: .inf}}", "weight .inf is outside", ":1", ""},
		{"users: {ana: {max_gpus: 0}}", "max_gpus 0 is not a whole number of at least 1", ":1", "leave the key out"},
		{"users: {ana: {max_gpus: -3}}", "max_gpus -3", ":1", ""},
		{"users: {ana: {max_running: 9999999999}}", "max_running 9999999999", ":1", ""},
		{"users: {ana: {}, ana: {}}", "users.ana is there twice", ":1", ""},
		{"- floor", "the file is no list of keys", ":1", "floor: 0.9"},
		{"floor 0.9", "the file is no list of keys", ":1", ""},
		{"{[a]: b}", "a key that is no name", ":1", ""},
		{"floor: 0.9\n  class: x", "not YAML", ":2", "a colon"},
		{"floor: 0.9\n---\nfloor: 0.8", "a second document", ":2", "---"},
		{"a: &x {floor: 1}\nusers: *x", "unknown key", ":1", ""},
		{strings.Repeat("#", 1<<20) + "#", "larger than 1 MiB", "", ""},
	} {
		path := written(t, "c.yaml", c.text+"\n")
		_, err := Load(Sources{Machine: path})
		var faults trace.Errors
		if !errors.As(err, &faults) {
			t.Errorf("%.40q: %v", c.text, err)
			continue
		}
		f := faults[0]
		place := strings.Split(f.Error(), " ")[0]
		if !strings.Contains(f.Message, c.message) || !strings.Contains(f.Fix, c.fix) || !strings.HasPrefix(strings.TrimSuffix(place, ":"), path+c.line) {
			t.Errorf("%.40q: %v fix %q", c.text, f, f.Fix)
		}
	}
}

func TestUsersDecideOnNoLimits(t *testing.T) {
	_, err := Load(Sources{User: written(t, "c.yaml", "floor: 0.5\nusers: {ana: {weight: 900}}\nadministrators: [ana]\n")})
	var faults trace.Errors
	if !errors.As(err, &faults) || len(faults) != 2 || faults[0].Line != 2 || faults[0].Fix != "move it to /etc/weft/config.yaml" {
		t.Fatal(err)
	}
}

func TestFoldersAreSeenFromHere(t *testing.T) {
	t.Chdir("/etc")
	l, err := Load(Sources{Environment: []string{"WEFT_STATE=a"}, Flags: map[string]string{"listen": "none"}})
	if err != nil || l.State != "/etc/a" || l.Listen != NoListen {
		t.Errorf("%v, %v", l, err)
	}
	if l, err = Load(Sources{Environment: []string{"WEFT_STATE=a"}, Flags: map[string]string{"state": "../b"}}); err != nil || l.State != "/b" {
		t.Errorf("%v, %v", l, err)
	}
}

func TestEnvironmentAndFlagsAreRefusedToo(t *testing.T) {
	_, err := Load(Sources{Environment: []string{"WEFT_FLOOR=90", "WEFT_LOG_LIMIT=x"}, Flags: map[string]string{"log_limit": "1", "nothing": "x"}})
	var faults trace.Errors
	if !errors.As(err, &faults) || len(faults) != 4 {
		t.Fatal(err)
	}
	if got := faults[0].Error() + " " + faults[0].Fix; got != `environment "WEFT_FLOOR": floor 90 is outside (0, 1] 0.9` {
		t.Error(got)
	}
	if got := faults[2].Error(); got != `command line "log-limit": log_limit 1 is below 1 MiB` {
		t.Error(got)
	}
	if _, err := Load(Sources{Machine: t.TempDir()}); err == nil {
		t.Error("a folder was read")
	}
}

// FuzzRead holds that any text is either in force, within its bounds, or refused with a place.
func FuzzRead(f *testing.F) {
	f.Add(machine)
	f.Add("floor: 90\nusers: {a: {b: c}}")
	f.Add("a: &x [*x]\n<<: *x")
	f.Add("floor: !!binary aGk=\n? [x]\n: y")
	f.Fuzz(func(t *testing.T, text string) {
		l := &Loaded{Config: standard(), Origin: map[string]string{}}
		r := &reader{into: l, file: "in", machine: true}
		r.read([]byte(text))
		for _, e := range r.faults {
			if e.Code == "" || e.Message == "" || e.File != "in" || e.Line < 0 {
				t.Fatalf("fault %+v", e)
			}
		}
		if !(l.Floor > 0 && l.Floor <= 1) || l.Priority < 0 || l.Priority > MostPriority || l.LogLimit < unit.MiB {
			t.Fatalf("%+v", l.Config)
		}
		for user := range l.Users {
			if o := l.Of(user); !(o.Weight > 0) || o.MaxGPUs < 0 || o.MaxRunning < 0 || o.MaxWaiting < 0 {
				t.Fatalf("%s may have %+v", user, o)
			}
		}
		l.Settings()
	})
}
