package emugpu

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFaultOOM(t *testing.T) {
	b := start(t, 2, Options{})
	d := attach(t, b.Socket(), "a")
	if err := b.Fault(Fault{Kind: OOM, GPU: 1, Number: 2}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []status{statusOOM, statusOOM, 0} {
		if _, err := d.alloc(1, 1); statusOf(err) != want {
			t.Errorf("allocation %d: %v, want status %d", i, err, want)
		}
	}
	if _, err := d.alloc(0, 1); err != nil {
		t.Errorf("the other GPU: %v", err)
	}
}

func TestFaultXID(t *testing.T) {
	b := start(t, 3, Options{})
	d := attach(t, b.Socket(), "a")
	for _, c := range []struct {
		xid    uint64
		broken status
		health health
	}{{31, statusIllegal, well}, {63, 0, unhealthy}, {48, statusECC, unhealthy}} {
		x, y := d.context(t, 1), d.context(t, 0)
		if err := b.Fault(Fault{Kind: XID, GPU: 1, Number: c.xid}); err != nil {
			t.Fatal(err)
		}
		if e := status(x.page.u32(contextError).Load()); e != c.broken {
			t.Errorf("XID %d breaks contexts with %d, want %d", c.xid, e, c.broken)
		}
		if e := y.page.u32(contextError).Load(); e != 0 {
			t.Errorf("XID %d breaks a context of another GPU with %d", c.xid, e)
		}
		if g := b.Stats().GPUs[1]; g.Health != c.health.String() || uint64(g.LastXID) != c.xid {
			t.Errorf("XID %d: %+v", c.xid, g)
		}
		d.do(t, request{Op: uint32(opContextDestroy), Context: x.id})
	}
	var seen []uint64
	for cursor := uint64(0); ; {
		r := d.do(t, request{Op: uint32(opEventNext), A: cursor})
		if r.Count == 0 {
			break
		}
		if cursor = r.A; r.B != 1 {
			t.Errorf("event of gpu %d", r.B)
		}
		seen = append(seen, r.C)
	}
	if !slices.Equal(seen, []uint64{31, 63, 48}) {
		t.Errorf("events %v", seen)
	}
	if r := d.do(t, request{Op: uint32(opEventNext), A: 1<<64 - 1}); r.A != 3 || r.Count != 0 {
		t.Errorf("the end of events is %d", r.A)
	}
}

// TestFaultLost also wakes who waits, and ends with a reset.
func TestFaultLost(t *testing.T) {
	b := start(t, 1, Options{})
	d := attach(t, b.Socket(), "a")
	me, c := d.enter(), d.context(t, 0)
	ended := make(chan status)
	n := c.null().launch(time.Hour)
	go func() { ended <- c.null().wait(me, n) }()
	time.Sleep(ms)
	o, err := Dial(b.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := o.Fault(Fault{Kind: Lost}); err != nil {
		t.Fatal(err)
	}
	if e := <-ended; e != statusLaunch {
		t.Errorf("who waits is told %d", e)
	}
	if _, err := d.tryContext(0); statusOf(err) != statusUnavailable {
		t.Errorf("a new context: %v", err)
	}
	if _, _, err := d.ask(request{Op: uint32(opStreamCreate), Context: c.id}); statusOf(err) != statusLaunch {
		t.Errorf("a stream of the broken context: %v", err)
	}
	if _, err := d.alloc(0, 1); statusOf(err) != statusUnavailable {
		t.Errorf("an allocation: %v", err)
	}
	if err := o.Fault(Fault{Kind: Reset}); err != nil {
		t.Fatal(err)
	}
	if s := d.context(t, 0).null(); s.wait(me, s.launch(ms)) != 0 || c.page.u32(contextError).Load() != uint32(statusLaunch) {
		t.Error("after the reset")
	}
}

// TestEndedWorkLetsOthersGoOn: the broker had foreseen a later end for who waits.
func TestEndedWorkLetsOthersGoOn(t *testing.T) {
	b := start(t, 1, Options{FIFO: true})
	d := attach(t, b.Socket(), "a")
	me, long, s := d.enter(), d.context(t, 0), d.context(t, 0).null()
	long.null().launch(time.Hour)
	ended := make(chan status)
	go func() { ended <- s.wait(me, s.launch(ms)) }()
	time.Sleep(5 * ms)
	d.do(t, request{Op: uint32(opContextDestroy), Context: long.id})
	if e := <-ended; e != 0 {
		t.Errorf("status %d", e)
	}
}

func TestFaultSlow(t *testing.T) {
	b := start(t, 1, Options{})
	d := attach(t, b.Socket(), "a")
	if err := b.Fault(Fault{Kind: Slow, Number: uint64(30 * ms)}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	d.info(t, 0)
	if took := time.Since(begin); took < 30*ms {
		t.Errorf("a slow request took %v", took)
	}
	if err := b.Fault(Fault{Kind: Slow}); err != nil {
		t.Fatal(err)
	}
}

func TestFaultsThatAreNone(t *testing.T) {
	b := start(t, 2, Options{})
	for _, c := range []struct {
		fault Fault
		want  string
	}{
		{Fault{}, "fault 0 is unknown"}, {Fault{Kind: faultEnd}, "unknown"}, {Fault{Kind: OOM, GPU: 2}, "gpu 2 is not there; there are 2"},
		{Fault{Kind: XID}, "XID 0 is outside"}, {Fault{Kind: Slow, Number: 1 << 60}, "at most 1m"}, {Fault{Kind: Hang, GPU: -1}, "not there"},
	} {
		if err := b.Fault(c.fault); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.fault, err, c.want)
		}
	}
	for _, name := range Faults() {
		if k, ok := FaultNamed(name); !ok || k.String() != name {
			t.Errorf("%s is %v", name, k)
		}
	}
	if _, ok := FaultNamed(""); ok {
		t.Error("a fault without a name")
	}
}

func TestDevicesAreDescribed(t *testing.T) {
	h100, _ := Model("H100")
	a10, _ := Model("a10")
	b := start(t, 0, Options{GPUs: []GPU{a10, h100}, Seed: 7})
	again := start(t, 0, Options{GPUs: []GPU{a10, h100}, Seed: 7})
	for i, g := range b.Stats().GPUs {
		if other := again.Stats().GPUs[i]; g.UUID != other.UUID || !strings.HasPrefix(g.UUID, "GPU-") || len(g.UUID) != 40 {
			t.Errorf("UUIDs %s and %s", g.UUID, other.UUID)
		}
	}
	if b.gpus[0].uuid == b.gpus[1].uuid {
		t.Error("two GPUs have one UUID")
	}
	d := attach(t, b.Socket(), "a")
	r := d.do(t, request{Op: uint32(opDeviceGet), GPU: 1})
	if got := text(r.Payload[:96]); got != h100.Name {
		t.Errorf("name %q", got)
	}
	if got := text(r.Payload[96:128]); got != "00000000:02:00.0" {
		t.Errorf("bus id %q", got)
	}
	for _, gpu := range []int32{-1, 2, 1 << 30} {
		if _, _, err := d.ask(request{Op: uint32(opDeviceGet), GPU: gpu}); statusOf(err) != statusNoDevice {
			t.Errorf("gpu %d: %v", gpu, err)
		}
	}
}

func TestUtilisationIsAsked(t *testing.T) {
	b := start(t, 1, Options{Clock: Virtual})
	d := attach(t, b.Socket(), "a")
	me, s := d.enter(), d.context(t, 0).null()
	s.wait(me, s.launch(time.Second))
	d.sleep(me, 500*ms)
	if r := d.do(t, request{Op: uint32(opUtilisation)}); r.A != 50 || r.B != 1 {
		t.Errorf("utilisation %d %%, memory %d %%", r.A, r.B)
	}
}
