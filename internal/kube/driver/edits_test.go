package driver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/kube/driver/cdi"
	"weft.dev/weft/internal/kube/driver/portion"
	"weft.dev/weft/internal/unit"
)

// TestEdits writes down what containers get, of real GPUs and of emulated ones.
func TestEdits(t *testing.T) {
	offers := func(uuids ...string) func(string) bool {
		return func(u string) bool { return slices.Contains(uuids, u) }
	}
	onReal := func(uuids ...string) *kit {
		return &kit{library: "/l/libweft.so", preload: "/l/ld.so.preload", toolkit: offers(uuids...)}
	}
	emulated := &kit{library: "/l/libweft.so", preload: "/l/ld.so.preload", emulated: "/l/emu", socket: "/run/gpus.sock", toolkit: offers()}
	two := []portion.Device{{Request: "gpu0", Name: "gpu-1", UUID: "GPU-b"}, {Request: "gpu1", Name: "gpu-0", UUID: "GPU-a"}}
	share := &portion.Share{Class: "burstable", Reserved: unit.GiB, Peak: unit.GiB}
	env := map[string]string{"WEFT_SOCKET": "/run/weft/alloc/7/agent.sock"}
	ofWeft := []cdi.Mount{file("/l/libweft.so", "/opt/weft/libweft.so"), file("/l/ld.so.preload", "/etc/ld.so.preload"), socketFolder("/run/weft/alloc/7")}
	ofEmulation := []cdi.Mount{file("/l/emu", "/opt/weft/emu"), file("/run/gpus.sock", "/run/gpus.sock")}
	for _, c := range []struct {
		name    string
		kit     *kit
		portion portion.Portion
		want    cdi.Edits   // of the claim
		each    []cdi.Edits // of its devices
		ids     []string    // of the first GPU
	}{
		{"shared, real", onReal(), portion.Portion{Devices: two, Share: share},
			cdi.Edits{Mounts: ofWeft, Env: []string{"WEFT_SOCKET=/run/weft/alloc/7/agent.sock", "NVIDIA_VISIBLE_DEVICES=GPU-b,GPU-a"}},
			[]cdi.Edits{{Env: []string{"WEFT_GPUS_0=GPU-b"}}, {Env: []string{"WEFT_GPUS_1=GPU-a"}}}, []string{cdi.ID("c", "gpu0")}},
		{"shared, described by the toolkit", onReal("GPU-a", "GPU-b"), portion.Portion{Devices: two, Share: share},
			cdi.Edits{Mounts: ofWeft, Env: []string{"WEFT_SOCKET=/run/weft/alloc/7/agent.sock", "NVIDIA_VISIBLE_DEVICES=void"}},
			[]cdi.Edits{{Env: []string{"WEFT_GPUS_0=GPU-b"}}, {Env: []string{"WEFT_GPUS_1=GPU-a"}}}, []string{cdi.ID("c", "gpu0"), "nvidia.com/gpu=GPU-b"}},
		{"half described", onReal("GPU-b"), portion.Portion{Devices: two},
			cdi.Edits{Env: []string{"NVIDIA_VISIBLE_DEVICES=GPU-b,GPU-a"}},
			[]cdi.Edits{{Env: []string{"WEFT_GPUS_0=GPU-b"}}, {Env: []string{"WEFT_GPUS_1=GPU-a"}}}, []string{cdi.ID("c", "gpu0")}},
		{"native, each container its own", onReal(), portion.Portion{Devices: two, Extended: true}, cdi.Edits{},
			[]cdi.Edits{{Env: []string{"WEFT_GPUS_0=GPU-b", "NVIDIA_VISIBLE_DEVICES=GPU-b"}}, {Env: []string{"WEFT_GPUS_1=GPU-a", "NVIDIA_VISIBLE_DEVICES=GPU-a"}}},
			[]string{cdi.ID("c", "gpu0")}},
		{"native, two for one request", onReal(), portion.Portion{Devices: []portion.Device{{Request: "r", UUID: "GPU-b"}, {Request: "r", UUID: "GPU-a"}}, Extended: true}, cdi.Edits{},
			[]cdi.Edits{{Env: []string{"WEFT_GPUS_0=GPU-b,GPU-a", "NVIDIA_VISIBLE_DEVICES=GPU-b,GPU-a"}}}, []string{cdi.ID("c", "r")}},
		{"an alternative", onReal(), portion.Portion{Devices: []portion.Device{{Request: "r/large", UUID: "GPU-b"}}}, cdi.Edits{Env: []string{"NVIDIA_VISIBLE_DEVICES=GPU-b"}},
			[]cdi.Edits{{Env: []string{"WEFT_GPUS_0=GPU-b"}}}, []string{cdi.ID("c", "r.large")}},
		{"native, emulated", emulated, portion.Portion{Devices: two[:1]},
			cdi.Edits{Mounts: ofEmulation, Env: []string{"LD_LIBRARY_PATH=/opt/weft/emu", "WEFT_EMU_SOCKET=/run/gpus.sock", "CUDA_VISIBLE_DEVICES=GPU-b"}},
			[]cdi.Edits{{Env: []string{"WEFT_GPUS_0=GPU-b"}}}, []string{cdi.ID("c", "gpu0")}},
		{"shared, emulated", emulated, portion.Portion{Devices: two[:1], Share: share},
			cdi.Edits{Mounts: append(slices.Clone(ofWeft), ofEmulation...), Env: []string{"WEFT_SOCKET=/run/weft/alloc/7/agent.sock", "CUDA_VISIBLE_DEVICES=GPU-b"}},
			[]cdi.Edits{{Env: []string{"WEFT_GPUS_0=GPU-b"}}}, []string{cdi.ID("c", "gpu0")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.portion.Claim.UID = "c"
			got := c.kit.spec(&c.portion, "/run/weft/alloc/7/", env)
			if diff := cmp.Diff(c.want, got.Edits); diff != "" {
				t.Errorf("claim (-want +got):\n%s", diff)
			}
			var each []cdi.Edits
			for _, d := range got.Devices {
				each = append(each, d.Edits)
			}
			if diff := cmp.Diff(c.each, each); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.ids, c.kit.ids(&c.portion, c.portion.Devices[0])); diff != "" {
				t.Errorf("ids (-want +got):\n%s", diff)
			}
		})
	}
}

// TestInstall copies what containers load once for each content, and keeps what is in use until the next start.
func TestInstall(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "lib")
	write := func(name, text string) {
		path := filepath.Join(from, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := install(from, to, false); err == nil || !strings.Contains(err.Error(), "libweft.so") {
		t.Fatalf("without a library: %v", err)
	}
	write("libweft.so", "one")
	write("emu/libcuda.so.1", "driver")
	write("emu/notes", "none")
	first, err := install(from, to, true)
	if err != nil {
		t.Fatal(err)
	}
	again, err := install(from, to, true)
	if err != nil || again.library != first.library {
		t.Errorf("the same content: %s, %s %v", first.library, again.library, err)
	}
	for path, want := range map[string]string{first.library: "one", first.preload: "/opt/weft/libweft.so\n", filepath.Join(first.emulated, "libcuda.so.1"): "driver"} {
		text, err := os.ReadFile(path)
		info, err2 := os.Stat(path)
		if err != nil || err2 != nil || string(text) != want || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %q %v %v", path, text, info, err)
		}
	}
	if _, err := os.Stat(filepath.Join(first.emulated, "notes")); err == nil {
		t.Error("it copies what is no library")
	}
	write("libweft.so", "two")
	second, err := install(from, to, true)
	if err != nil || second.library == first.library {
		t.Fatalf("other content: %s %v", second.library, err)
	}
	if text, err := os.ReadFile(first.library); err != nil || string(text) != "one" {
		t.Errorf("the first was changed: %q %v", text, err)
	}
	if err := second.removeOthers(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(to); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
	if _, err := os.Stat(second.library); err != nil {
		t.Error(err)
	}
}

// TestTurns lets one at a time work on a claim, others beside it on theirs, and nobody wait longer than his context.
func TestTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var own turns
		claims := rapid.IntRange(1, 3).Draw(t, "claims")
		working := make([]atomic.Int32, claims)
		var wait sync.WaitGroup
		for i := range rapid.IntRange(1, 20).Draw(t, "calls") {
			wait.Go(func() {
				done, err := own.take(context.Background(), string(rune('a'+i%claims)))
				if err != nil {
					t.Errorf("%v", err)
					return
				}
				if working[i%claims].Add(1) != 1 {
					t.Errorf("two work on a claim")
				}
				working[i%claims].Add(-1)
				done()
			})
		}
		wait.Wait()
		if len(own.of) != 0 {
			t.Errorf("left: %v", own.of)
		}
	})
	var own turns
	done, err := own.take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := own.take(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	done()
	if len(own.of) != 0 {
		t.Errorf("left: %v", own.of)
	}
}
