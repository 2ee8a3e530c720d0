// Package shared finds the recorded traces and reported cases that tests read. They are not part of the project: a
// test that needs one is skipped, and says which file is missing, where they are not laid beside the checkout.
package shared

import (
	"os"
	"path/filepath"
	"testing"
)

// Data is the path of a file under shared/data. The test is skipped when it is absent.
func Data(t testing.TB, name string) string {
	t.Helper()
	return find(t, "data", name)
}

// Case is the path of a file under shared/cases. The test is skipped when it is absent.
func Case(t testing.TB, name string) string {
	t.Helper()
	return find(t, "cases", name)
}

func find(t testing.TB, kind, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("find shared/%s: %v", kind, err)
	}
	for {
		path := filepath.Join(dir, "shared", kind, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Skipf("SKIPPED for want of data: no shared/%s/%s in any folder above this package", kind, name)
		}
		dir = parent
	}
}
