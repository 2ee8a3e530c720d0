package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/kube/driver/portion"
	"weft.dev/weft/internal/unit"
)

// released are the entries of testdata/v1.json: what version 1 of the file was first released with. An agent that is upgraded finds such a file.
func released() map[string]Entry {
	shared := entry("shared", Completed)
	shared.Portion.Share.Weight, shared.Portion.Share.Cooperates = 3, true
	shared.Portion.Devices[0].ShareID = "share-1"
	native := Entry{State: Completed, Portion: portion.Portion{Claim: portion.Object{Namespace: "ml", Name: "native-gpu", UID: "native"},
		Pod: portion.Object{Namespace: "ml", Name: "native", UID: "q"}, Extended: true, Devices: []portion.Device{
			{Request: "container-0-request-0", Pool: "node-1", Name: "gpu-1", UUID: "GPU-2"}, {Request: "container-1-request-0", Pool: "node-1", Name: "gpu-2", UUID: "GPU-3"}}}}
	begun := entry("begun", Started)
	begun.Portion.Share = &portion.Share{Class: "besteffort", Reserved: unit.MiB, Peak: unit.MiB}
	return map[string]Entry{"shared": shared, "native": native, "begun": begun}
}

// TestReadsReleased: the file of an earlier release of this version is read as it was meant, to the last field, and written again as it
// was. Who changes what an entry says gives the file another version, and keeps reading this one.
func TestReadsReleased(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join("testdata", "v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	if err := os.WriteFile(path, golden, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	if diff := cmp.Diff(released(), s.Entries()); diff != "" || len(s.Bad()) > 0 {
		t.Errorf("it is read otherwise, bad are %v:\n%s", s.Bad(), diff)
	}
	if err := errors.Join(s.Put(entry("more", Started)), s.Remove("more")); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), string(after)); diff != "" {
		t.Errorf("it is written otherwise:\n%s", diff)
	}
}
