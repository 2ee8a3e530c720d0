package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/kube/driver/cdi"
	"weft.dev/weft/internal/kube/driver/checkpoint"
	"weft.dev/weft/internal/unit"
)

// crashing names the driver that this program is to be, and where it is to be killed.
const crashing = "WEFT_TEST_CRASH"

// crashPlan is what a driver does before it is killed.
type crashPlan struct {
	Dir   string `json:"dir"`
	Verb  string `json:"verb"` // prepare, unprepare
	Point string `json:"point"`
}

// still is GPUs that nobody computes on.
type still struct{ gpus []device.GPU }

func (s still) GPUs() []device.GPU                      { return s.gpus }
func (s still) Processes(int) ([]device.Process, error) { return nil, nil }
func (s still) Utilisation(int) (float64, error)        { return 0, nil }
func (s still) NextFault(wait time.Duration) (device.Fault, bool, error) {
	time.Sleep(wait)
	return device.Fault{}, false, nil
}
func (s still) Close() error { return nil }

// lone is the part of a driver that prepares claims, over an agent of its own, without a kubelet.
type lone struct {
	*claims
	a *agent.Agent
}

func openLone(dir string, faults func(string)) (*lone, error) {
	home := filepath.Join(dir, "agent")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	m := still{gpusOf(2, 22*unit.GiB)}
	a, err := agent.Open(context.Background(), agent.Options{Dir: home, Machine: m, Locks: filepath.Join(dir, "locks"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	store, err := checkpoint.Open(filepath.Join(dir, "checkpoint.json"))
	if err != nil {
		_ = a.Close() // the checkpoint's trouble is the news
		return nil, err
	}
	return &lone{&claims{node: node, gpus: m.gpus, agent: a, folder: cdi.Folder(filepath.Join(dir, "cdi")), store: store, patience: 5 * time.Second, faults: faults,
		kit: &kit{library: "/lib", preload: "/preload", toolkit: func(string) bool { return false }}}, a}, nil
}

func nowhere(string) {}

func yes() error { return nil }

// crash is the driver that is killed.
func crash(text string) error {
	var p crashPlan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	armed := false
	l, err := openLone(p.Dir, func(point string) {
		if armed && point == p.Point {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until then
		}
	})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := l.restore(ctx, func(string, error) {}); err != nil {
		return err
	}
	armed = true
	if p.Verb == "unprepare" {
		err = l.unprepare(ctx, "uid-first")
	} else {
		_, err = l.prepare(ctx, firstClaim(), yes)
	}
	return fmt.Errorf("it was not killed at %s: %w", p.Point, err)
}

func firstClaim() *resourcev1.ResourceClaim {
	return allocated("first", 22*unit.GiB, 8*unit.GiB, parameters("guaranteed", "8Gi", "12Gi"), [2]string{"gpu0", "gpu-0"}, [2]string{"gpu1", "gpu-1"})
}

// die runs a driver to the point where it is killed.
func die(t *testing.T, p crashPlan) {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), crashing+"="+string(text))
	out, err := cmd.CombinedOutput()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL || ctx.Err() != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// again opens the driver that comes after.
func again(t *testing.T, dir string) *lone {
	t.Helper()
	l, err := openLone(dir, nowhere)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.a.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := l.restore(t.Context(), func(claim string, err error) { t.Errorf("%s: %v", claim, err) }); err != nil {
		t.Fatal(err)
	}
	return l
}

// state is all that there is of claims: entries, allocations without their number, CDI files without the allocation's folder.
func (l *lone) state(t *testing.T) map[string][]string {
	t.Helper()
	s := map[string][]string{}
	for uid, e := range l.store.Entries() {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		s["entries"] = append(s["entries"], uid+" "+string(text))
	}
	folders := []string{}
	for uid, j := range jobsOf(t, l.a) {
		s["allocations"] = append(s["allocations"], fmt.Sprint(uid, j.GPUs, j.Class, j.Memory))
		folders = append(folders, filepath.Dir(j.Socket), "FOLDER")
	}
	files, err := filepath.Glob(filepath.Join(string(l.folder), "*"))
	if err != nil {
		t.Fatal(err)
	}
	hidden, err := filepath.Glob(filepath.Join(string(l.folder), ".*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(files, hidden...) {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		s["files"] = append(s["files"], filepath.Base(f)+strings.NewReplacer(folders...).Replace(string(text)))
	}
	for _, list := range s {
		slices.Sort(list)
	}
	return s
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft-crash-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestKilledAnywhere kills the driver, and the agent with it, at each point of a preparation: what comes after starts with nothing or
// with the whole, a second preparation gives what an undisturbed one gives, and nothing is left once it is taken back.
func TestKilledAnywhere(t *testing.T) {
	undisturbed := again(t, shortDir(t))
	if _, err := undisturbed.prepare(t.Context(), firstClaim(), yes); err != nil {
		t.Fatal(err)
	}
	whole := undisturbed.state(t)
	if len(whole["entries"]) != 1 || len(whole["allocations"]) != 1 || len(whole["files"]) != 1 {
		t.Fatalf("%v", whole)
	}
	for _, point := range []string{"released", "removed", "started", "allocated", "written", "completed"} {
		t.Run(point, func(t *testing.T) {
			dir := shortDir(t)
			die(t, crashPlan{dir, "prepare", point})
			l := again(t, dir)
			want := map[string][]string{}
			if point == "completed" {
				want = whole
			}
			if diff := cmp.Diff(want, l.state(t)); diff != "" {
				t.Errorf("after the restart (-want +got):\n%s", diff)
			}
			for range 2 {
				if _, err := l.prepare(t.Context(), firstClaim(), yes); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(whole, l.state(t)); diff != "" {
					t.Errorf("prepared (-want +got):\n%s", diff)
				}
			}
			if err := l.unprepare(t.Context(), "uid-first"); err != nil {
				t.Fatal(err)
			}
			if s := l.state(t); len(s) != 0 {
				t.Errorf("left: %v", s)
			}
		})
	}
}

// TestKilledUnpreparing does the same while a claim is taken back: it is whole again after the restart, as its entry says, or gone, and
// the kubelet's next call takes it back.
func TestKilledUnpreparing(t *testing.T) {
	for _, point := range []string{"released", "removed"} {
		t.Run(point, func(t *testing.T) {
			dir := shortDir(t)
			die(t, crashPlan{dir, "prepare", "completed"})
			die(t, crashPlan{dir, "unprepare", point})
			l := again(t, dir)
			if s := l.state(t); len(s["entries"]) != 1 || len(s["allocations"]) != 1 || len(s["files"]) != 1 {
				t.Errorf("%v", s)
			}
			for range 2 {
				if err := l.unprepare(t.Context(), "uid-first"); err != nil {
					t.Fatal(err)
				}
			}
			if s := l.state(t); len(s) != 0 {
				t.Errorf("left: %v", s)
			}
		})
	}
}

// TestReboot empties what is in memory alone: the CDI files and the sockets come back, under the names that the kubelet has.
func TestReboot(t *testing.T) {
	dir := shortDir(t)
	die(t, crashPlan{dir, "prepare", "completed"})
	for _, gone := range []string{"agent", "cdi", "locks"} {
		if err := os.RemoveAll(filepath.Join(dir, gone)); err != nil {
			t.Fatal(err)
		}
	}
	l := again(t, dir)
	jobs := jobsOf(t, l.a)
	edits, err := inject(string(l.folder), []string{cdi.ID("uid-first", "gpu0"), cdi.ID("uid-first", "gpu1")})
	if err != nil {
		t.Fatal(err)
	}
	if want := "WEFT_SOCKET=" + jobs["uid-first"].Socket; !contains(edits.Env, want) {
		t.Errorf("%v, want %s", edits.Env, want)
	}
	if _, err := os.Stat(jobs["uid-first"].Socket); err != nil {
		t.Error(err)
	}
}

// TestBadEntryHarmsItsClaimAlone: the others are restored, what runs of it goes on, and it is replaced or removed when asked for.
func TestBadEntryHarmsItsClaimAlone(t *testing.T) {
	dir := shortDir(t)
	l := again(t, dir)
	other := allocated("other", 22*unit.GiB, unit.GiB, parameters("burstable", "1Gi", "1Gi"), [2]string{"gpu0", "gpu-1"})
	for _, c := range []*resourcev1.ResourceClaim{firstClaim(), other} {
		if _, err := l.prepare(t.Context(), c, yes); err != nil {
			t.Fatal(err)
		}
	}
	before := jobsOf(t, l.a)
	if err := l.a.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "checkpoint.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Version int            `json:"version"`
		Claims  map[string]any `json:"claims"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	file.Claims["uid-first"] = "damaged"
	if text, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err = openLone(dir, nowhere); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.a.Close() }() // it is closed twice where the test succeeds
	var said []string
	if err := l.restore(t.Context(), func(claim string, err error) { said = append(said, claim+": "+err.Error()) }); err != nil {
		t.Fatal(err)
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "uid-first: its checkpoint entry is unreadable") {
		t.Errorf("%q", said)
	}
	after := jobsOf(t, l.a)
	for uid := range before {
		if after[uid].ID != before[uid].ID {
			t.Errorf("%s: allocation %d, was %d", uid, after[uid].ID, before[uid].ID)
		}
	}
	if _, err := l.prepare(t.Context(), firstClaim(), yes); err != nil {
		t.Fatal(err)
	}
	if len(l.store.Bad()) != 0 || len(l.store.Entries()) != 2 {
		t.Errorf("%v %v", l.store.Bad(), l.store.Entries())
	}
	for _, uid := range []string{"uid-first", "uid-other"} {
		if err := l.unprepare(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
	}
	if s := l.state(t); len(s) != 0 {
		t.Errorf("left: %v", s)
	}
}
