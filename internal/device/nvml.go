//go:build cgo

package device

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"weft.dev/weft/internal/unit"
)

// machine is a Machine over NVML.
type machine struct {
	library nvml.Interface
	gpus    []GPU
	devices []nvml.Device

	mu     sync.Mutex // held by who waits for faults; Close waits for it
	faults nvml.EventSet
	closed bool
}

// Open loads the management library at a path (a file, a folder, or "" for the system's own) and looks at all GPUs.
func Open(path string) (Machine, error) {
	return open(nvml.New(nvml.WithLibraryPath(library(path))))
}

func open(lib nvml.Interface) (Machine, error) {
	if r := lib.Init(); r != nvml.SUCCESS {
		return nil, fmt.Errorf("%w: load the driver's management library: %s", ErrNone, r.Error())
	}
	m := &machine{library: lib}
	if err := m.look(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.watch()
	return m, nil
}

// look lists the GPUs.
func (m *machine) look() error {
	n, r := m.library.DeviceGetCount()
	if err := fault("count GPUs", r); err != nil {
		return err
	}
	for i := range n {
		d, r := m.library.DeviceGetHandleByIndex(i)
		if err := fault(fmt.Sprintf("look at GPU %d", i), r); err != nil {
			return err
		}
		g, err := describe(d)
		if err != nil {
			return fmt.Errorf("GPU %d: %w", i, err)
		}
		m.gpus, m.devices = append(m.gpus, g), append(m.devices, d)
	}
	if n == 0 {
		return fmt.Errorf("%w: the driver lists none", ErrNone)
	}
	return nil
}

func describe(d nvml.Device) (GPU, error) {
	var g GPU
	text, r := d.GetUUID()
	if err := fault("its UUID", r); err != nil {
		return g, err
	}
	var err error
	if g.UUID, err = ParseUUID(text); err != nil {
		return g, err
	}
	if g.Name, r = d.GetName(); r != nvml.SUCCESS {
		g.Name = "unknown"
	}
	if pci, r := d.GetPciInfo(); r == nvml.SUCCESS {
		g.PCI = fmt.Sprintf("%08x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
	}
	if v2, r := d.GetMemoryInfo_v2(); r == nvml.SUCCESS {
		g.Total, g.Usable = size(v2.Total), size(v2.Total-min(v2.Total, v2.Reserved))
		return g, nil
	}
	v1, r := d.GetMemoryInfo()
	g.Total, g.Usable = size(v1.Total), size(v1.Total)
	return g, fault("its memory", r)
}

// watch asks for the critical errors of all GPUs; where the driver cannot say them, there are none to be heard of.
func (m *machine) watch() {
	set, r := m.library.EventSetCreate()
	if r != nvml.SUCCESS {
		return
	}
	m.faults = set
	for _, d := range m.devices {
		_ = d.RegisterEvents(nvml.EventTypeXidCriticalError, set) // a GPU that cannot report is not heard of
	}
}

// GPUs implements Machine.
func (m *machine) GPUs() []GPU { return m.gpus }

// DriverVersion implements Versioned.
func (m *machine) DriverVersion() (string, error) {
	version, r := m.library.SystemGetDriverVersion()
	return version, fault("its version", r)
}

// Processes implements Machine.
func (m *machine) Processes(gpu int) ([]Process, error) {
	infos, r := m.devices[gpu].GetComputeRunningProcesses()
	if err := fault(fmt.Sprintf("processes of GPU %d", gpu), r); err != nil {
		return nil, err
	}
	list := make([]Process, len(infos))
	for i, p := range infos {
		list[i] = Process{PID: int(p.Pid), Bytes: size(p.UsedGpuMemory)}
		if p.UsedGpuMemory == math.MaxUint64 { // not available
			list[i].Bytes = 0
		}
	}
	return list, nil
}

// Utilisation implements Machine.
func (m *machine) Utilisation(gpu int) (float64, error) {
	u, r := m.devices[gpu].GetUtilizationRates()
	return float64(u.Gpu) / 100, fault(fmt.Sprintf("utilisation of GPU %d", gpu), r)
}

// NextFault implements Machine.
func (m *machine) NextFault(wait time.Duration) (Fault, bool, error) {
	if m.faults == nil {
		time.Sleep(wait)
		return Fault{}, false, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return Fault{}, false, nil
	}
	e, r := m.faults.Wait(uint32(min(wait.Milliseconds(), math.MaxUint32)))
	if r == nvml.ERROR_TIMEOUT {
		return Fault{}, false, nil
	}
	if err := fault("wait for faults", r); err != nil {
		return Fault{}, false, err
	}
	for i, d := range m.devices {
		if uuid, r := d.GetUUID(); r == nvml.SUCCESS && e.Device != nil {
			if of, r := e.Device.GetUUID(); r == nvml.SUCCESS && of == uuid {
				return Fault{GPU: i, XID: e.EventData}, true, nil
			}
		}
	}
	return Fault{}, false, nil
}

// Close implements Machine.
func (m *machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	if m.faults != nil {
		_ = m.faults.Free() // the library is unloaded next
	}
	return fault("unload the management library", m.library.Shutdown())
}

func fault(what string, r nvml.Return) error {
	if r == nvml.SUCCESS {
		return nil
	}
	return fmt.Errorf("%s: %s", what, r.Error())
}

func size(b uint64) unit.Bytes { return unit.Bytes(min(b, math.MaxInt64)) }
