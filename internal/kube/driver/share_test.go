package driver

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/internal/unit"
)

// memory is what weft-probe memory says.
type memory struct {
	Managed int   `json:"managed"`
	Total   int64 `json:"total_bytes"`
	Device  int64 `json:"device_total_bytes"`
	Had     int64 `json:"allocated_bytes"`
	Refusal int   `json:"refusal_code"`
}

func probeMemory(t *testing.T, folder string, ids []string, uid int, env ...string) memory {
	t.Helper()
	out, said, err := run(t, folder, ids, uid, env, "/programs/weft-probe", "memory")
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, said)
	}
	var m memory
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return m
}

// TestTwoClaimsShareOneGPU runs real programs in the containers of three claims: two have parts of one GPU, each its own limit and
// its turns, whatever user they run as; the third has the other GPU whole, without weft.
func TestTwoClaimsShareOneGPU(t *testing.T) {
	b := newBed(t, inMemory(), Options{})
	first := b.give("first", 8*unit.GiB, parameters("guaranteed", "8Gi", "8Gi"), [2]string{"gpu0", "gpu-0"})
	second := b.give("second", 4*unit.GiB, parameters("besteffort", "4Gi", "6Gi"), [2]string{"gpu0", "gpu-0"})
	native := b.give("native", 0, "", [2]string{"r", "gpu-1"})
	ids := map[*resourcev1.ResourceClaim][]string{}
	for _, c := range []*resourcev1.ResourceClaim{first, second, native} {
		ids[c] = b.prepare(c)
	}
	for _, c := range []struct {
		claim   *resourcev1.ResourceClaim
		uid     int
		managed int
		limit   unit.Bytes
	}{{first, 1001, 1, 8 * unit.GiB}, {second, 0, 1, 6 * unit.GiB}, {second, 65534, 1, 6 * unit.GiB}, {native, 1001, 0, b.machine.GPUs()[1].Usable}} {
		m := probeMemory(t, b.o.CDI, ids[c.claim], c.uid)
		if m.Managed != c.managed || m.Total > int64(c.limit) || m.Total < int64(c.limit)-int64(2*unit.GiB) || m.Had > int64(c.limit) || m.Had < int64(c.limit)-int64(2*unit.GiB) || m.Refusal != 2 {
			t.Errorf("%s as user %d: %+v, limit %v", c.claim.Name, c.uid, m, c.limit)
		}
	}
	b.together(ids[first], ids[second], ids[native])
	for _, c := range []*resourcev1.ResourceClaim{first, second, native} {
		b.unprepare(c)
		b.unprepare(c) // it is taken back already
	}
	b.nothing()
}

// together runs a program in each of three containers at once.
func (b *bed) together(first, second, native []string) {
	b.Helper()
	var programs []*program
	for i, ids := range [][]string{first, second, native} {
		seconds := []string{"60", "60", "3"}[i] // the first two are ended once they have been seen beside each other
		programs = append(programs, start(b.T, b.o.CDI, ids, 1000+i, nil, "/programs/weft-probe", "load", "--seconds", seconds, "--kernels", "20", "--gap-ms", "1"))
	}
	eventually(b, "each has a process of its own, which computes", patience, func() bool {
		one, two := b.jobs()["uid-first"], b.jobs()["uid-second"]
		return len(one.PIDs) == 1 && len(two.PIDs) == 1 && min(one.Launches, two.Launches) > 20
	})
	if jobs := b.jobs(); len(jobs["uid-native"].PIDs) != 0 || !jobs["uid-native"].Whole {
		b.Errorf("the native one: %+v", jobs["uid-native"])
	}
	for i, p := range programs {
		if i < 2 {
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				b.Fatal(err)
			}
		}
		if err := p.Wait(); err != nil {
			b.Fatalf("%d: %v: %s%s", i, err, p.out.String(), p.said.String())
		}
		var r struct {
			Managed    int     `json:"managed"`
			Iterations float64 `json:"iterations"`
		}
		if err := json.Unmarshal(p.out.Bytes(), &r); err != nil || r.Iterations < 1 || (r.Managed == 1) != (i < 2) {
			b.Errorf("%d: %v %s%s", i, err, p.out.String(), p.said.String())
		}
	}
	jobs := b.jobs()
	for name, of := range map[string]string{"first": "guaranteed", "second": "besteffort"} {
		j := jobs["uid-"+name]
		if j.Launches < 20 || j.Class.String() != of || j.Container.Pod != "pod-"+name || j.Container.Name != "trainer" || j.Name != "ml/pod-"+name+"/trainer" {
			b.Errorf("%s: %+v %+v", name, j, j.Container)
		}
	}
}

// TestContainersAreApart tries from within a container, as root, to reach another's socket and to raise its own limit.
func TestContainersAreApart(t *testing.T) {
	b := newBed(t, inMemory(), Options{})
	small := b.give("small", unit.GiB, parameters("burstable", "1Gi", "1Gi"), [2]string{"gpu0", "gpu-0"})
	large := b.give("large", 8*unit.GiB, parameters("burstable", "8Gi", "8Gi"), [2]string{"gpu0", "gpu-0"})
	ids := b.prepare(small)
	b.prepare(large)
	jobs := b.jobs()
	own, other := filepath.Dir(jobs["uid-small"].Socket), filepath.Dir(jobs["uid-large"].Socket)
	out, said, err := run(t, b.o.CDI, ids, 0, nil, "/usr/bin/sh", "-c", strings.NewReplacer("OWN", own, "OTHER", other, "HOME", filepath.Dir(filepath.Dir(own))).Replace(`
		ls -d OTHER HOME/control.sock HOME/state.json 2>/dev/null && echo "reaches what is not its own"
		ls HOME/alloc | grep -qx $(basename OWN) || echo "lacks its own"
		[ $(ls HOME/alloc | wc -l) = 1 ] || echo "sees others"
		(echo WEFT_MEMORY=20GiB >> OWN/environment) 2>/dev/null && echo "writes its environment"
		rm -f OWN/agent.sock 2>/dev/null && echo "removes its socket"
		(echo >> /etc/ld.so.preload) 2>/dev/null && echo "writes the preload"
		(echo >> /opt/weft/libweft.so) 2>/dev/null && echo "writes the library"
		mount -o remount,rw OWN 2>/dev/null && echo "mounts"
		umount OWN 2>/dev/null && echo "unmounts"
		true`))
	if err != nil || out != "" {
		t.Errorf("%v: %s%s", err, out, said)
	}
	for _, env := range [][]string{
		{"WEFT_MEMORY=20GiB"},
		{"WEFT_SOCKET=" + filepath.Join(own, "agent.sock"), "WEFT_LIMIT=20GiB", "WEFT_RESERVED=20GiB", "WEFT_CLASS=guaranteed"},
	} {
		if m := probeMemory(t, b.o.CDI, ids, 0, env...); m.Managed != 1 || m.Total > int64(unit.GiB) || m.Had > int64(unit.GiB) {
			t.Errorf("with %v: %+v", env, m)
		}
	}
	if m := probeMemory(t, b.o.CDI, ids, 0, "WEFT_MEMORY=512MiB"); m.Total > int64(512*unit.MiB) {
		t.Errorf("it may lower its limit: %+v", m)
	}
	if m := probeMemory(t, b.o.CDI, ids, 0, "WEFT_SOCKET="+filepath.Join(other, "agent.sock")); m.Managed != 0 {
		t.Errorf("at another's socket: %+v", m)
	}
	if j := b.jobs()["uid-large"]; len(j.PIDs)+len(j.Escaped) != 0 {
		t.Errorf("the other: %+v", j)
	}
	info, err := os.Stat(filepath.Join(b.dir, "agent"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the agent's folder: %v %v", info.Mode(), err)
	}
}

// TestTwoContainersOfOnePod have two claims, and so two sockets and two limits on two GPUs: case C05.
func TestTwoContainersOfOnePod(t *testing.T) {
	b := newBed(t, inMemory(), Options{})
	a := b.give("left", 2*unit.GiB, parameters("burstable", "2Gi", "2Gi"), [2]string{"gpu0", "gpu-0"})
	c := b.give("right", 3*unit.GiB, parameters("burstable", "3Gi", "3Gi"), [2]string{"gpu0", "gpu-1"})
	left, right := b.prepare(a), b.prepare(c)
	jobs := b.jobs()
	if jobs["uid-left"].Socket == jobs["uid-right"].Socket {
		t.Error("one socket")
	}
	if m := probeMemory(t, b.o.CDI, left, 1000); m.Total > int64(2*unit.GiB) {
		t.Errorf("%+v", m)
	}
	if m := probeMemory(t, b.o.CDI, right, 1000); m.Total > int64(3*unit.GiB) || m.Total < int64(2*unit.GiB) {
		t.Errorf("%+v", m)
	}
}

// TestSeveralGPUs gives a claim with two GPUs one allocation, in the order of its requests, and all of them to its container.
func TestSeveralGPUs(t *testing.T) {
	b := newBed(t, inMemory(), Options{})
	c := b.give("two", 2*unit.GiB, parameters("burstable", "2Gi", "2Gi"), [2]string{"gpu0", "gpu-1"}, [2]string{"gpu1", "gpu-0"})
	answer, err := b.ask(t.Context(), c)
	if err != nil || len(answer.Devices) != 2 {
		t.Fatalf("%+v %v", answer, err)
	}
	for i, d := range answer.Devices {
		if want := fmt.Sprintf("gpu%d", i); len(d.RequestNames) != 1 || d.RequestNames[0] != want || d.PoolName != node || len(d.CdiDeviceIds) != 1 || !strings.HasSuffix(d.CdiDeviceIds[0], "-"+want) {
			t.Errorf("%d: %+v", i, d)
		}
	}
	j := b.jobs()["uid-two"]
	if len(j.GPUs) != 2 || j.GPUs[0] != 1 || j.GPUs[1] != 0 {
		t.Errorf("GPUs %v", j.GPUs)
	}
	out, said, err := run(t, b.o.CDI, b.prepare(c), 1000, nil, "/programs/weft-train", "--devices", "0,1", "--seconds", "1")
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, said)
	}
	if m := b.jobs()["uid-two"]; m.Launches == 0 {
		t.Errorf("no launches: %s%s", out, said)
	}
}

// TestExtendedResource gives each container of a native Pod the GPUs of its own request.
func TestExtendedResource(t *testing.T) {
	b := newBed(t, inMemory(), Options{})
	c := allocated("extended", b.machine.GPUs()[0].Usable, 0, "", [2]string{"container-0-request-0", "gpu-1"}, [2]string{"container-1-request-0", "gpu-0"})
	c.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
	c, err := b.client.ResourceV1().ResourceClaims("ml").Create(t.Context(), c, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ids := b.prepare(c)
	if len(ids) != 2 {
		t.Fatalf("%v", ids)
	}
	for i, id := range ids {
		edits, err := inject(b.o.CDI, []string{id})
		if err != nil {
			t.Fatal(err)
		}
		if want := "CUDA_VISIBLE_DEVICES=" + b.uuid(1-i); !contains(edits.Env, want) {
			t.Errorf("%s: %v, want %s", id, edits.Env, want)
		}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
