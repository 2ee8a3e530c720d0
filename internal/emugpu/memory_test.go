package emugpu

import (
	"testing"

	"weft.dev/weft/internal/unit"
)

// info is free and used memory of a GPU.
func (d *driver) info(t *testing.T, gpu int) (free, used unit.Bytes) {
	t.Helper()
	r := d.do(t, request{Op: uint32(opMemInfo), GPU: int32(gpu)})
	if r.A+r.D != r.B || r.B > r.C {
		t.Errorf("free %d, usable %d, total %d, used %d", r.A, r.B, r.C, r.D)
	}
	return unit.Bytes(r.A), unit.Bytes(r.D)
}

func TestMemoryIsExact(t *testing.T) {
	b := start(t, 2, Options{})
	d := attach(t, b.Socket(), "a")
	free, _ := d.info(t, 1)
	all, err := d.alloc(1, free)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.alloc(1, 1); statusOf(err) != statusOOM {
		t.Errorf("a byte more than there is: %v", err)
	}
	if _, err := d.tryContext(1); statusOf(err) != statusOOM {
		t.Errorf("a context without memory: %v", err)
	}
	host := d.do(t, request{Op: uint32(opMemAlloc), GPU: 1, A: 1 << 40, B: memoryHost}).A
	if _, used := d.info(t, 0); used != 0 {
		t.Errorf("gpu 0 has %v in use", used)
	}
	d.do(t, request{Op: uint32(opMemFree), A: all})
	d.do(t, request{Op: uint32(opMemFree), A: host})
	if again, _ := d.info(t, 1); again != free {
		t.Errorf("%v free, before %v", again, free)
	}
	for _, q := range []request{{Op: uint32(opMemFree), A: all}, {Op: uint32(opMemRetain), A: 0}, {Op: uint32(opMemResize), A: 99, B: 1},
		{Op: uint32(opMemExport), A: 1 << 63}, {Op: uint32(opMemImport)}} {
		if _, _, err := d.ask(q); statusOf(err) != statusNoHandle {
			t.Errorf("%+v: %v", q, err)
		}
	}
	for _, q := range []request{{Op: uint32(opMemAlloc)}, {Op: uint32(opMemAlloc), A: 1, B: memoryKinds}} {
		if _, _, err := d.ask(q); statusOf(err) != statusInvalid {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if _, err := d.alloc(0, 1); err != nil {
		t.Fatal(err)
	}
	for _, huge := range []uint64{1 << 62, 1 << 63, 1<<64 - 1} {
		if _, _, err := d.ask(request{Op: uint32(opMemAlloc), A: huge}); statusOf(err) != statusOOM {
			t.Errorf("%d bytes: %v", huge, err)
		}
	}
}

func TestContextsFreeTheirMemory(t *testing.T) {
	b := start(t, 1, Options{})
	d := attach(t, b.Socket(), "a")
	c := d.context(t, 0)
	d.do(t, request{Op: uint32(opMemAlloc), Context: c.id, A: 1 << 30})
	own, err := d.alloc(0, unit.GiB)
	if err != nil {
		t.Fatal(err)
	}
	d.do(t, request{Op: uint32(opContextDestroy), Context: c.id})
	if _, used := d.info(t, 0); used != unit.GiB {
		t.Errorf("%v in use after the context, want 1 GiB", used)
	}
	d.do(t, request{Op: uint32(opMemFree), A: own})
	for _, o := range []op{opContextDestroy, opStreamCreate, opMemAlloc} {
		if _, _, err := d.ask(request{Op: uint32(o), Context: c.id, A: 1}); statusOf(err) != statusNoContext {
			t.Errorf("request %d on a destroyed context: %v", o, err)
		}
	}
}

func TestReferencesAndPools(t *testing.T) {
	b := start(t, 1, Options{})
	d := attach(t, b.Socket(), "a")
	id, err := d.alloc(0, unit.GiB)
	if err != nil {
		t.Fatal(err)
	}
	d.do(t, request{Op: uint32(opMemRetain), A: id})
	d.do(t, request{Op: uint32(opMemFree), A: id})
	if _, used := d.info(t, 0); used != unit.GiB {
		t.Errorf("%v in use while a reference lives", used)
	}
	free, _ := d.info(t, 0)
	if _, _, err := d.ask(request{Op: uint32(opMemResize), A: id, B: uint64(unit.GiB + free + 1)}); statusOf(err) != statusOOM {
		t.Errorf("a pool grows beyond the GPU: %v", err)
	}
	d.do(t, request{Op: uint32(opMemResize), A: id, B: uint64(unit.GiB + free)})
	d.do(t, request{Op: uint32(opMemResize), A: id, B: 5})
	if _, used := d.info(t, 0); used != 5 {
		t.Errorf("%v in use after the pool was trimmed", used)
	}
	d.do(t, request{Op: uint32(opMemFree), A: id})
	if _, used := d.info(t, 0); used != 0 {
		t.Errorf("%v in use at the end", used)
	}
}

// TestExportedMemory stays as long as anybody holds it, and is charged to one of them.
func TestExportedMemory(t *testing.T) {
	b := start(t, 1, Options{})
	exporter, importer := attach(t, b.Socket(), "exporter"), attach(t, b.Socket(), "importer")
	id, err := exporter.alloc(0, unit.GiB)
	if err != nil {
		t.Fatal(err)
	}
	q := request{Op: uint32(opMemImport)}
	copy(q.Text[:], exporter.do(t, request{Op: uint32(opMemExport), A: id}).Payload[:])
	if r := importer.do(t, q); r.A != id || r.B != uint64(unit.GiB) || r.C != 0 {
		t.Errorf("imported %d of %d bytes", r.A, r.B)
	}
	forged := q
	forged.Text[16] ^= 1
	if _, _, err := importer.ask(forged); statusOf(err) != statusNoHandle {
		t.Errorf("a forged handle: %v", err)
	}
	charged := func(name string) unit.Bytes {
		for _, p := range b.Stats().Processes {
			if p.Name == name && len(p.GPUs) > 0 {
				return p.GPUs[0].Bytes
			}
		}
		return 0
	}
	if charged("exporter") != unit.GiB || charged("importer") != 0 {
		t.Errorf("charged %v and %v", charged("exporter"), charged("importer"))
	}
	exporter.close()
	eventually(t, func() bool { return charged("importer") == unit.GiB && charged("exporter") == 0 })
	if _, used := importer.info(t, 0); used != unit.GiB {
		t.Errorf("%v in use", used)
	}
	importer.do(t, request{Op: uint32(opMemFree), A: id})
	if _, used := importer.info(t, 0); used != 0 {
		t.Errorf("%v in use at the end", used)
	}
}
