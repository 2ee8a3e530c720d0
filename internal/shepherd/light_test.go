package shepherd

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"
)

// TestLight tells what a shepherd takes. SHEPHERD_TEST_WEFT names the program that is measured: this test by default.
func TestLight(t *testing.T) {
	executable := cmp.Or(os.Getenv("SHEPHERD_TEST_WEFT"), "/proc/self/exe")
	var times []time.Duration
	dir := t.TempDir()
	for i := range 15 {
		task := script(dir, "exec true")
		task.Attempt = i + 1
		began := time.Now()
		p, err := Start(executable, dir, task, nil)
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Since(began))
		ended(t, p)
		_ = p.Close()
	}
	slices.Sort(times)
	task := script(dir, "echo > ready; exec sleep 1000")
	task.Attempt = 100
	p, err := Start(executable, dir, task, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	exists(t, filepath.Join(dir, "ready"))
	time.Sleep(200 * time.Millisecond)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.claim.PID))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("start: %v at best, %v in the middle, %v at worst; memory: %q", times[0], times[len(times)/2], times[len(times)-1],
		regexp.MustCompile(`(VmRSS|RssAnon):\s+\d+ kB`).FindAllString(string(status), -1))
	if err := p.Stop(Stopped); err != nil {
		t.Fatal(err)
	}
	ended(t, p)
}
