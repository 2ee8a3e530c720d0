//go:build cgo

package device

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/emugpu"
	"weft.dev/weft/internal/unit"
)

// TestEmulated speaks to the management library of emulated GPUs as to that of real ones.
func TestEmulated(t *testing.T) {
	const folder = "../../bin/lib/emu"
	if _, err := os.Stat(filepath.Join(folder, "libnvidia-ml.so.1")); err != nil {
		t.Skip("the emulated driver is not built: make build")
	}
	a10, _ := emugpu.Model("a10")
	h100, _ := emugpu.Model("h100")
	socket := filepath.Join(t.TempDir(), "gpus.sock")
	broker, err := emugpu.Start(emugpu.Options{Socket: socket, GPUs: []emugpu.GPU{a10, h100}, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	t.Setenv("WEFT_EMU_SOCKET", socket)
	m, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	g := m.GPUs()
	if len(g) != 2 || g[0].Name != "NVIDIA A10" || g[0].Usable != 22*unit.GiB+512*unit.MiB || g[0].Total != 24*unit.GiB || g[1].UUID == g[0].UUID || g[0].PCI == "" {
		t.Errorf("%+v", g)
	}
	if p, err := m.Processes(0); err != nil || len(p) != 0 {
		t.Errorf("%v %v", p, err)
	}
	if u, err := m.Utilisation(1); err != nil || u != 0 {
		t.Errorf("%v %v", u, err)
	}
	if v, ok := m.(Versioned); !ok {
		t.Error("no version of the driver")
	} else if text, err := v.DriverVersion(); err != nil || strings.Count(text, ".") < 1 {
		t.Errorf("version %q %v", text, err)
	}
	o, err := emugpu.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := o.Fault(emugpu.Fault{Kind: emugpu.XID, GPU: 1, Number: 48}); err != nil {
		t.Fatal(err)
	}
	if f, ok, err := m.NextFault(20 * time.Second); !ok || err != nil || f != (Fault{1, 48}) {
		t.Errorf("%+v %v %v", f, ok, err)
	}
}
