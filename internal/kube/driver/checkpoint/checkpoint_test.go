package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/kube/driver/portion"
	"weft.dev/weft/internal/unit"
)

func entry(uid string, state State) Entry {
	return Entry{State: state, Portion: portion.Portion{Claim: portion.Object{Namespace: "ml", Name: "weft-" + uid, UID: uid}, Pod: portion.Object{Namespace: "ml", Name: "bert-0", UID: "p"},
		Container: "trainer", Devices: []portion.Device{{Request: "gpu0", Pool: "node-1", Name: "gpu-0", UUID: "GPU-1"}},
		Share: &portion.Share{Class: "guaranteed", Reserved: unit.GiB, Peak: 2 * unit.GiB}}}
}

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	s := open(t, path)
	for _, e := range []Entry{entry("a", Started), entry("b", Started), entry("a", Completed), entry("c", Completed)} {
		if err := s.Put(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Remove("c"); err != nil {
		t.Fatal(err)
	}
	want := map[string]Entry{"a": entry("a", Completed), "b": entry("b", Started)}
	if diff := cmp.Diff(want, open(t, path).Entries()); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// TestStoreCannotWrite changes nothing where the disk takes nothing.
func TestStoreCannotWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "checkpoint.json")
	s := open(t, path)
	if err := s.Put(entry("a", Started)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+".new", 0o700); err != nil { // it cannot be written to, even by root
		t.Fatal(err)
	}
	if err := s.Put(entry("a", Completed)); err == nil {
		t.Fatal("no error")
	}
	if err := s.Remove("a"); err == nil {
		t.Fatal("no error")
	}
	if e, _ := s.Entry("a"); e.State != Started {
		t.Errorf("state %s", e.State)
	}
	if e := open(t, path).Entries()["a"]; e.State != Started {
		t.Errorf("state %s on the disk", e.State)
	}
}

// TestStoreVersions refuses what another weft wrote, and says what to do.
func TestStoreVersions(t *testing.T) {
	for text, fault := range map[string]string{
		`{"version":2,"claims":[1]}`: "has version 2 and this weft reads version 1",
		`{"version":0}`:              "has version 0",
		`{}`:                         "has version 0",
		`{"version":1,"claims":7}`:   "drain the node",
		`{"version":1`:               "is no JSON",
		``:                           "is no JSON",
	} {
		path := filepath.Join(t.TempDir(), "checkpoint.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path)
		if err == nil || !strings.Contains(err.Error(), fault) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", text, err)
		}
		var version *VersionError
		if is := errors.As(err, &version); is != strings.Contains(fault, "version") {
			t.Errorf("%s: %T", text, err)
		}
		if after, _ := os.ReadFile(path); string(after) != text {
			t.Errorf("the file was changed to %s", after)
		}
	}
}

// TestStoreBadEntries reads the others, and keeps a bad one until its claim is prepared anew or taken back.
func TestStoreBadEntries(t *testing.T) {
	good, err := json.Marshal(entry("good", Completed))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	text := fmt.Sprintf(`{"version":1,"claims":{"good":%s,"kind":"text","state":{"state":"Half"},"other":%s,"empty":{"state":"PrepareStarted","portion":{"claim":{"uid":"empty"}}}}}`, good, good)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	if got := s.Entries(); len(got) != 1 || got["good"].State != Completed {
		t.Fatalf("%+v", got)
	}
	if bad := s.Bad(); len(bad) != 4 {
		t.Fatalf("%+v", bad)
	}
	if err := errors.Join(s.Put(entry("kind", Started)), s.Remove("empty")); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	bad := s.Bad()
	if _, kept := bad["state"]; len(bad) != 2 || !kept || len(s.Entries()) != 2 {
		t.Errorf("%+v %+v", bad, s.Entries())
	}
}

// TestStoreLaws: after any sequence of changes, another store reads what the last one has.
func TestStoreLaws(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "checkpoint.json")
		_ = os.Remove(path)
		s, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(0, 8).Draw(t, "changes") {
			uid := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "claim")
			if rapid.Bool().Draw(t, "put") {
				err = s.Put(entry(uid, rapid.SampledFrom([]State{Started, Completed}).Draw(t, "state")))
			} else {
				err = s.Remove(uid)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		next, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s.Entries(), next.Entries()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzOpen: no file makes it panic, or an entry that it would not have written.
func FuzzOpen(f *testing.F) {
	for _, text := range []string{`{"version":1,"claims":{"a":{"state":"PrepareStarted","portion":{"claim":{"uid":"a"},"devices":[{}]}}}}`, `{"version":1,"claims":{"":null}}`, `[]`, `{"version":1e9}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &Store{path: "checkpoint", entries: map[string]Entry{}, bad: map[string]Bad{}}
		if s.read(text) != nil {
			return
		}
		for uid, e := range s.Entries() {
			if e.Portion.Claim.UID != uid || len(e.Portion.Devices) == 0 || e.State != Started && e.State != Completed {
				t.Errorf("%q: %+v", uid, e)
			}
		}
	})
}
