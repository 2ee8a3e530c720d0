package box

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/unit"
)

// careless is what scripts do to their environment.
var careless = []string{"nothing", "zero", "three", "all", "order", "empty", "nvall"}

// TestJobsSeeTheirGPUs places jobs on a machine of mixed models, in which the orders of CUDA and of the management library
// differ: whatever a script sets, it has its own GPUs, in the order placed, or none.
func TestJobsSeeTheirGPUs(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: there is no python3")
	}
	script, err := filepath.Abs(filepath.Join("testdata", "which_gpu.py"))
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, "--emulate", "4", "--gpu-model", "t4", "--gpu-model", "h100", "--gpu-model", "a10", "--gpu-model", "v100")
	b.start()
	uuids := b.uuids()
	which := func(gpus int, how string) box.ID {
		return b.submit(spec("", func(s *box.Spec) {
			s.Path, s.Command, s.GPUs, s.Memory = python, []string{"python3", script, how}, gpus, 14*unit.GiB
			s.Env = append(s.Env, "CUDA_VISIBLE_DEVICES=2", "CUDA_DEVICE_ORDER=FASTEST_FIRST", "NVIDIA_VISIBLE_DEVICES=void", "HOME=/root", "PATH="+filepath.Dir(python)+":/usr/bin:/bin")
		}))
	}
	jobs := map[box.ID]string{}
	for _, how := range careless {
		jobs[which(1, how)] = how
	}
	for _, gpus := range []int{2, 4} {
		jobs[which(gpus, "nothing")] = "nothing"
	}
	for id, how := range jobs {
		j := b.done(id)
		stdout, stderr := b.output(id)
		var seen struct{ CUDA, NVML []string }
		if err := json.Unmarshal([]byte(stdout), &seen); err != nil || *j.Exit != 0 {
			t.Errorf("%s: %v, %q %q", how, err, stdout, stderr)
			continue
		}
		var placed []string
		for _, g := range j.On {
			placed = append(placed, uuids[g])
		}
		if !slices.Equal(seen.CUDA, placed) && !(how == "empty" && len(seen.CUDA) == 0) {
			t.Errorf("%s on %v: CUDA has %v, placed %v", how, j.On, seen.CUDA, placed)
		}
		if !slices.Equal(slices.Sorted(slices.Values(seen.NVML)), slices.Sorted(slices.Values(placed))) {
			t.Errorf("%s on %v: the management library has %v, placed %v", how, j.On, seen.NVML, placed)
		}
	}
}

// uuids are those of the GPUs by weft gpus, as plain hexadecimal digits.
func (b *bed) uuids() []string {
	b.t.Helper()
	var list struct{ GPUs []box.GPU }
	r := b.run("gpus", "--json")
	if err := json.Unmarshal([]byte(r.out), &list); err != nil {
		b.t.Fatalf("%v: %s %s", err, r.out, r.err)
	}
	var uuids []string
	for _, g := range list.GPUs {
		uuids = append(uuids, strings.ReplaceAll(strings.TrimPrefix(g.UUID, "GPU-"), "-", ""))
	}
	return uuids
}
