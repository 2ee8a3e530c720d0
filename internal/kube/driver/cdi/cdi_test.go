package cdi

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const claim = "6f1c2f7e-0000-4000-8000-000000000001"

func spec() Spec {
	return Spec{Claim: claim, Edits: Edits{Env: []string{"A=1"}, Mounts: []Mount{{"/host", "/in", []string{"ro"}}}},
		Devices: []Device{{"gpu0", Edits{Env: []string{"B=2"}}}}}
}

const written = `{
  "cdiVersion": "0.5.0",
  "kind": "gpu.weft.dev/claim",
  "devices": [
    {
      "name": "6f1c2f7e-0000-4000-8000-000000000001-gpu0",
      "containerEdits": {
        "env": [
          "B=2"
        ]
      }
    }
  ],
  "containerEdits": {
    "env": [
      "A=1"
    ],
    "mounts": [
      {
        "hostPath": "/host",
        "containerPath": "/in",
        "options": [
          "ro"
        ]
      }
    ]
  }
}
`

func TestFolder(t *testing.T) {
	f := Folder(filepath.Join(t.TempDir(), "cdi"))
	if list, err := f.Claims(); err != nil || len(list) != 0 {
		t.Fatalf("a folder that is not there: %v %v", list, err)
	}
	if err := f.Write(spec()); err != nil {
		t.Fatal(err)
	}
	path, err := f.Path(claim)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(written, string(text)); diff != "" {
		t.Error(diff)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write(spec()); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same content was written again: %v", err)
	}
	if got, want := ID(claim, "gpu0"), "gpu.weft.dev/claim=6f1c2f7e-0000-4000-8000-000000000001-gpu0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, name := range []string{"nvidia.yaml", "gpu.weft.dev-claim-x.json.bak", ".gpu.weft.dev-claim-x.json.new", "gpu.weft.dev-claim-.json"} {
		if err := os.WriteFile(filepath.Join(string(f), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := f.Claims(); err != nil || !slices.Equal(list, []string{claim}) {
		t.Errorf("%v %v", list, err)
	}
	for range 2 {
		if err := f.Remove(claim); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(string(f)); err != nil || len(entries) != 4 {
		t.Errorf("%v %v", entries, err)
	}
}

// TestNames lets nothing that is no UID into a path.
func TestNames(t *testing.T) {
	f := Folder(t.TempDir())
	for _, uid := range []string{"", ".", "..", "../../etc/passwd", "a/b", "a\x00b", "-a", "a b"} {
		if _, err := f.Path(uid); err == nil {
			t.Errorf("%q has a path", uid)
		}
		if err := f.Write(Spec{Claim: uid}); err == nil {
			t.Errorf("%q was written", uid)
		}
		if err := f.Remove(uid); err == nil {
			t.Errorf("%q was removed", uid)
		}
	}
}

func TestOffers(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"nvidia.yaml": "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: \"0\"\n- name: GPU-1\n- name: all\n",
		"other.json":  `{"kind":"example.com/gpu","devices":[{"name":"GPU-2"}]}`,
		"broken.json": `{`,
		"note.txt":    "kind: nvidia.com/gpu\ndevices: [{name: GPU-3}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{"GPU-1": true, "0": true, "GPU-2": false, "GPU-3": false, "": false} {
		if got := Offers([]string{"/nowhere", dir}, "nvidia.com/gpu", name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
