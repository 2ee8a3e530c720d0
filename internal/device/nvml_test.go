//go:build cgo

package device

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"weft.dev/weft/internal/unit"
)

func card(uuid string, reserved uint64, v2 nvml.Return) *mock.Device {
	return &mock.Device{
		GetUUIDFunc:    func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
		GetNameFunc:    func() (string, nvml.Return) { return "A10", nvml.SUCCESS },
		GetPciInfoFunc: func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{Bus: 0x17}, nvml.SUCCESS },
		GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) {
			return nvml.Memory_v2{Total: 24 << 30, Reserved: reserved}, v2
		},
		GetMemoryInfoFunc:       func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 24 << 30}, nvml.SUCCESS },
		GetUtilizationRatesFunc: func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 40}, nvml.SUCCESS },
		RegisterEventsFunc:      func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS },
		GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
			return []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 1 << 20}, {Pid: 8, UsedGpuMemory: math.MaxUint64}}, nvml.SUCCESS
		},
	}
}

const (
	first  = "GPU-00112233-4455-6677-8899-aabbccddeeff"
	second = "GPU-10112233-4455-6677-8899-aabbccddeeff"
)

func TestMachine(t *testing.T) {
	cards := []*mock.Device{card(first, 1<<30, nvml.SUCCESS), card(second, 0, nvml.ERROR_NOT_SUPPORTED)}
	faults := 1
	lib := &mock.Interface{
		InitFunc: func() nvml.Return { return nvml.SUCCESS }, ShutdownFunc: func() nvml.Return { return nvml.SUCCESS },
		DeviceGetCountFunc:         func() (int, nvml.Return) { return len(cards), nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) { return cards[i], nvml.SUCCESS },
		EventSetCreateFunc: func() (nvml.EventSet, nvml.Return) {
			return &mock.EventSet{FreeFunc: func() nvml.Return { return nvml.SUCCESS },
				WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
					if faults--; faults < 0 {
						return nvml.EventData{}, nvml.ERROR_TIMEOUT
					}
					return nvml.EventData{Device: cards[1], EventData: 79}, nvml.SUCCESS
				}}, nvml.SUCCESS
		},
	}
	m, err := open(lib)
	if err != nil {
		t.Fatal(err)
	}
	g := m.GPUs()
	if len(g) != 2 || g[0].UUID.String() != first || g[0].Total != 24*unit.GiB || g[0].Usable != 23*unit.GiB || g[1].Usable != 24*unit.GiB ||
		g[0].PCI != "00000000:17:00.0" || g[0].Name != "A10" {
		t.Errorf("%+v", g)
	}
	if p, err := m.Processes(0); err != nil || len(p) != 2 || p[0] != (Process{7, unit.MiB}) || p[1] != (Process{8, 0}) {
		t.Errorf("%v %v", p, err)
	}
	if u, err := m.Utilisation(1); err != nil || u != 0.4 {
		t.Errorf("%v %v", u, err)
	}
	if f, ok, err := m.NextFault(time.Millisecond); !ok || err != nil || f != (Fault{1, 79}) {
		t.Errorf("%v %v %v", f, ok, err)
	}
	if _, ok, err := m.NextFault(time.Millisecond); ok || err != nil {
		t.Errorf("a fault where there is none: %v", err)
	}
	if err := errors.Join(m.Close(), m.Close()); err != nil || len(lib.ShutdownCalls()) != 1 {
		t.Errorf("%v, %d calls", err, len(lib.ShutdownCalls()))
	}
}

func TestNone(t *testing.T) {
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNone) {
		t.Errorf("a folder without a library: %v", err)
	}
	empty := &mock.Interface{
		InitFunc: func() nvml.Return { return nvml.SUCCESS }, ShutdownFunc: func() nvml.Return { return nvml.SUCCESS },
		DeviceGetCountFunc: func() (int, nvml.Return) { return 0, nvml.SUCCESS },
	}
	if _, err := open(empty); !errors.Is(err, ErrNone) || len(empty.ShutdownCalls()) != 1 {
		t.Errorf("no GPU: %v", err)
	}
}

func TestLibrary(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{"": "libnvidia-ml.so.1", dir: filepath.Join(dir, "libnvidia-ml.so.1"), "/x/y.so": "/x/y.so"} {
		if got := library(path); got != want {
			t.Errorf("library(%q) = %q", path, got)
		}
	}
}

func TestUUID(t *testing.T) {
	for _, s := range []string{first, strings.TrimPrefix(first, "GPU-"), "MIG-" + strings.TrimPrefix(first, "GPU-")} {
		if u, err := ParseUUID(s); err != nil || u.String() != first {
			t.Errorf("%q: %v %v", s, u, err)
		}
	}
	for _, s := range []string{"", "GPU-0", first + "0", strings.ReplaceAll(first, "-", ""), "GPU-g0112233-4455-6677-8899-aabbccddeeff"} {
		if _, err := ParseUUID(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}
