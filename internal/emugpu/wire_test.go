package emugpu

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

// layout is every number that the two sides have to agree on, by its C expression.
var layout = map[string]uint64{
	"EMU_PROTOCOL": wireProtocol, "EMU_MAGIC": wireMagic, "EMU_MAX_GPUS": maxGPUs, "EMU_STREAMS": maxStreams,
	"EMU_RING_ENTRIES": ringEntries, "EMU_EVENTS": maxEvents, "EMU_THREADS": maxThreads, "EMU_AUDIT_SLOTS": auditSlots,
	"EMU_AUDIT_PROBES": auditProbes, "EMU_AUDIT_HASH": auditHash, "EMU_AUDIT_GONE": auditGone,
	"EMU_EPOCH_OVERRUN": epochOverrun, "EMU_EPOCH_UNMANAGED": epochUnmanaged, "EMU_MAX_COST": 86400e9,
	"EMU_CLOCK_REAL": uint64(Real), "EMU_CLOCK_VIRTUAL": uint64(Virtual),
	"EMU_FREE": threadFree, "EMU_RUNNING": threadRunning, "EMU_WAITING": threadWaiting, "EMU_SLEEPING": threadSleeping,
	"EMU_KERNEL": 1, "EMU_GRAPH": 2, "EMU_H2D": 3, "EMU_D2H": 4, "EMU_DEVICE": 5, "EMU_RECORD": 6, "EMU_WAIT": 7, "EMU_HOST": 8,
	"EMU_ROLE_DRIVER": roleDriver, "EMU_ROLE_OBSERVER": roleObserver,
	"EMU_HELLO": uint64(opHello), "EMU_DEVICE_GET": uint64(opDeviceGet), "EMU_CONTEXT_CREATE": uint64(opContextCreate),
	"EMU_CONTEXT_DESTROY": uint64(opContextDestroy), "EMU_STREAM_CREATE": uint64(opStreamCreate),
	"EMU_STREAM_DESTROY": uint64(opStreamDestroy), "EMU_MEM_ALLOC": uint64(opMemAlloc), "EMU_MEM_FREE": uint64(opMemFree),
	"EMU_MEM_RETAIN": uint64(opMemRetain), "EMU_MEM_RESIZE": uint64(opMemResize), "EMU_MEM_EXPORT": uint64(opMemExport),
	"EMU_MEM_IMPORT": uint64(opMemImport), "EMU_MEM_INFO": uint64(opMemInfo), "EMU_PROCESSES": uint64(opProcesses),
	"EMU_UTILISATION": uint64(opUtilisation), "EMU_EVENT_NEXT": uint64(opEventNext), "EMU_AUDIT_OPEN": uint64(opAuditOpen),
	"EMU_FAULT": uint64(opFault), "EMU_STATS": uint64(opStats), "EMU_OPS": uint64(ops),
	"EMU_MEM_HOST": memoryHost, "EMU_MEMORIES": memoryKinds,
	"EMU_FAULT_HANG": uint64(Hang), "EMU_FAULT_OOM": uint64(OOM), "EMU_FAULT_XID": uint64(XID), "EMU_FAULT_LOST": uint64(Lost),
	"EMU_FAULT_SLOW": uint64(Slow), "EMU_FAULT_RESET": uint64(Reset), "EMU_FAULTS": uint64(faultEnd),
	"EMU_E_VERSION": uint64(statusVersion), "EMU_E_REQUEST": uint64(statusRequest), "EMU_E_ROLE": uint64(statusRole),
	"EMU_HANDLE_BYTES": textBytes, "EMU_PAYLOAD_BYTES": payloadBytes,
	"EMU_GPU_OK": uint64(well), "EMU_GPU_UNHEALTHY": uint64(unhealthy), "EMU_GPU_LOST": uint64(lost),
	"EMU_GONE": uint64(statusUnavailable),

	"sizeof(struct emu_clock)": clockSize, "offsetof(struct emu_clock, protocol)": 4, "offsetof(struct emu_clock, mode)": clockMode,
	"offsetof(struct emu_clock, gpus)": clockGPUs, "offsetof(struct emu_clock, base)": clockBase,
	"offsetof(struct emu_clock, scale_num)": clockNum, "offsetof(struct emu_clock, scale_den)": clockDen,
	"offsetof(struct emu_clock, now)": clockNow, "offsetof(struct emu_clock, sleeping)": clockSleeping,

	"sizeof(struct emu_entry)": entrySize, "offsetof(struct emu_entry, submit)": entrySubmit, "offsetof(struct emu_entry, cost)": entryCost,
	"offsetof(struct emu_entry, epoch)": entryEpoch, "offsetof(struct emu_entry, function)": entryFunction,
	"offsetof(struct emu_entry, kind)": entryKind,

	"sizeof(struct emu_ring)": ringSize, "offsetof(struct emu_ring, head)": ringHead, "offsetof(struct emu_ring, done)": ringDone,
	"offsetof(struct emu_ring, want)": ringWant, "offsetof(struct emu_ring, host_done)": ringHostDone,
	"offsetof(struct emu_ring, entries)": ringFirst,

	"sizeof(struct emu_event)": eventSize, "offsetof(struct emu_event, generation)": eventGeneration, "offsetof(struct emu_event, time)": eventTime,
	"sizeof(struct emu_context)": contextSize, "offsetof(struct emu_context, id)": contextID, "offsetof(struct emu_context, gpu)": contextGPU,
	"offsetof(struct emu_context, error)": contextError, "offsetof(struct emu_context, events)": contextEvents,
	"offsetof(struct emu_context, rings)": contextRings,

	"sizeof(struct emu_thread)": threadSize, "offsetof(struct emu_thread, state)": threadState,
	"offsetof(struct emu_thread, context)": threadContext, "offsetof(struct emu_thread, ring)": threadRing,
	"offsetof(struct emu_thread, until)": threadUntil,
	"sizeof(struct emu_process)":         processSize, "offsetof(struct emu_process, pid)": processPID,
	"offsetof(struct emu_process, threads)": processThreads, "offsetof(struct emu_process, slots)": processSlots,

	"sizeof(struct emu_audit_slot)": auditSlotSize, "offsetof(struct emu_audit_slot, pid)": auditSlotPID,
	"offsetof(struct emu_audit_slot, epoch)": auditSlotEpoch,
	"sizeof(struct emu_audit)":               auditSize, "offsetof(struct emu_audit, slots)": auditFirst,

	"sizeof(struct emu_request)": requestSize, "offsetof(struct emu_request, op)": uint64(unsafe.Offsetof(request{}.Op)),
	"offsetof(struct emu_request, gpu)":     uint64(unsafe.Offsetof(request{}.GPU)),
	"offsetof(struct emu_request, context)": uint64(unsafe.Offsetof(request{}.Context)),
	"offsetof(struct emu_request, a)":       uint64(unsafe.Offsetof(request{}.A)), "offsetof(struct emu_request, c)": uint64(unsafe.Offsetof(request{}.C)),
	"offsetof(struct emu_request, text)": uint64(unsafe.Offsetof(request{}.Text)),
	"sizeof(struct emu_reply)":           replySize, "offsetof(struct emu_reply, op)": uint64(unsafe.Offsetof(reply{}.Op)),
	"offsetof(struct emu_reply, count)": uint64(unsafe.Offsetof(reply{}.Count)), "offsetof(struct emu_reply, a)": uint64(unsafe.Offsetof(reply{}.A)),
	"offsetof(struct emu_reply, d)": uint64(unsafe.Offsetof(reply{}.D)), "offsetof(struct emu_reply, payload)": uint64(unsafe.Offsetof(reply{}.Payload)),

	"sizeof(struct emu_device)": uint64(binary.Size(device{})), "offsetof(struct emu_device, bus_id)": uint64(unsafe.Offsetof(device{}.BusID)),
	"offsetof(struct emu_device, uuid)": uint64(unsafe.Offsetof(device{}.UUID)), "offsetof(struct emu_device, major)": uint64(unsafe.Offsetof(device{}.Major)),
	"offsetof(struct emu_device, processors)":     uint64(unsafe.Offsetof(device{}.Processors)),
	"offsetof(struct emu_device, health)":         uint64(unsafe.Offsetof(device{}.Health)),
	"offsetof(struct emu_device, last_xid)":       uint64(unsafe.Offsetof(device{}.LastXID)),
	"offsetof(struct emu_device, total_bytes)":    uint64(unsafe.Offsetof(device{}.Total)),
	"offsetof(struct emu_device, usable_bytes)":   uint64(unsafe.Offsetof(device{}.Usable)),
	"offsetof(struct emu_device, context_bytes)":  uint64(unsafe.Offsetof(device{}.Context)),
	"offsetof(struct emu_device, copy_bytes_s)":   uint64(unsafe.Offsetof(device{}.CopyRate)),
	"offsetof(struct emu_device, memory_bytes_s)": uint64(unsafe.Offsetof(device{}.MemoryRate)),
	"sizeof(struct emu_usage)":                    usageSize, "offsetof(struct emu_usage, contexts)": uint64(unsafe.Offsetof(usage{}.Contexts)),
	"offsetof(struct emu_usage, bytes)":   uint64(unsafe.Offsetof(usage{}.Bytes)),
	"offsetof(struct emu_usage, busy_ns)": uint64(unsafe.Offsetof(usage{}.Busy)),
	"offsetof(struct emu_usage, kernels)": uint64(unsafe.Offsetof(usage{}.Kernels)),
}

// TestWireHeader compares with what the C compiler makes of the header.
func TestWireHeader(t *testing.T) {
	var source strings.Builder
	source.WriteString("#include <stdio.h>\n#include \"emu_wire.h\"\nint main(void) {\n")
	for _, expression := range sortedKeys(layout) {
		fmt.Fprintf(&source, "printf(\"%%llu %%s\\n\", (unsigned long long)(%s), \"%s\");\n", expression, expression)
	}
	source.WriteString("return 0;\n}\n")
	out, err := exec.Command(compile(t, source.String())).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(string(out)) {
		var value uint64
		number, expression, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := fmt.Sscan(number, &value); err != nil {
			t.Fatal(err)
		}
		if value != layout[expression] {
			t.Errorf("%s is %d in C, %d in Go", expression, value, layout[expression])
		}
		lines++
	}
	if lines != len(layout) {
		t.Errorf("%d lines for %d expressions", lines, len(layout))
	}
	if binary.Size(request{}) != requestSize || binary.Size(reply{}) != replySize || binary.Size(usage{}) != usageSize {
		t.Error("a packet's size in Go differs")
	}
}

// compile makes a program of C text with the header at hand.
func compile(t testing.TB, source string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	dir := t.TempDir()
	file, program := filepath.Join(dir, "program.c"), filepath.Join(dir, "program")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cc, "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-I../../shim/emu",
		"-o", program, file, "-lpthread")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}
