package claim

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"weft.dev/weft/internal/kube"
)

// good is a window as an agent writes it.
const good = `{"apiVersion":"weft.dev/v1alpha1","kind":"Window","end":"2026-01-02T03:04:05.000006Z","seconds":20,"age":60,"wait":1,"stall":0,"held":9,"used":8,` +
	`"iterations":100,"utilisation":0.5,"beside":1,"peak":"3Gi"}`

// windowIn is the window of a claim with such data of a driver's device.
func windowIn(driver, data string) (ok bool) {
	c := &resourcev1.ResourceClaim{Status: resourcev1.ResourceClaimStatus{Devices: []resourcev1.AllocatedDeviceStatus{
		{Driver: "other.example.com", Data: &runtime.RawExtension{Raw: []byte(good)}}, {Driver: kube.Driver}, {Driver: driver, Data: &runtime.RawExtension{Raw: []byte(data)}}}}}
	_, ok = Window(c)
	return ok
}

// TestWindow: what can be is read, and nothing else.
func TestWindow(t *testing.T) {
	if !windowIn(kube.Driver, good) {
		t.Fatal("a good one is none")
	}
	if windowIn("other.example.com", good) {
		t.Error("of another driver")
	}
	if _, ok := Window(&resourcev1.ResourceClaim{}); ok {
		t.Error("of a claim of which nothing was said")
	}
	for _, change := range [][2]string{
		{"v1alpha1", "v2"}, {`"Window"`, `"Worker"`}, {`"seconds":20`, `"seconds":0`}, {`"seconds":20`, `"seconds":-1`}, {`"seconds":20`, `"seconds":1e300`}, {`"seconds":20`, `"seconds":9.3e9`},
		{`"seconds":20`, `"seconds":"20"`}, {`"age":60`, `"age":-1`}, {`"wait":1`, `"wait":-0.1`}, {`"stall":0`, `"stall":-1`}, {`"held":9`, `"held":1e19`}, {`"used":8`, `"used":-8`},
		{`"iterations":100`, `"iterations":-1`}, {`"iterations":100`, `"iterations":1e30`}, {`"iterations":100`, `"iterations":9223372036854775808`}, {`"utilisation":0.5`, `"utilisation":1.01`},
		{`"beside":1`, `"beside":-1`}, {`"peak":"3Gi"`, `"peak":"-3Gi"`}, {`"peak":"3Gi"`, `"peak":"much"`}, {`"end":"2026-01-02T03:04:05.000006Z",`, ``}, {`"end":"2026-01-02T03:04:05.000006Z"`, `"end":"now"`},
		{good, ``}, {good, `null`}, {good, `[]`}, {good, `{`}, {good, `"Window"`},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if text == good {
			t.Fatalf("%v changes nothing", change)
		}
		if windowIn(kube.Driver, text) {
			t.Errorf("taken: %s", text)
		}
	}
}

// FuzzWindow: whatever somebody writes there, what is read are figures that can be reckoned with.
func FuzzWindow(f *testing.F) {
	for _, text := range []string{good, `{}`, `null`, strings.Replace(good, "20", "1e-320", 1), strings.Replace(good, `"3Gi"`, `"9e999"`, 1), strings.Replace(good, "2026", "9999", 1)} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &resourcev1.ResourceClaim{Status: resourcev1.ResourceClaimStatus{Devices: []resourcev1.AllocatedDeviceStatus{{Driver: kube.Driver, Data: &runtime.RawExtension{Raw: data}}}}}
		w, ok := Window(c)
		if !ok {
			return
		}
		for _, v := range []float64{w.Seconds, w.Age, w.Wait, w.Stall, w.Held, w.Used, w.Utilisation} {
			if d := time.Duration(v * float64(time.Second)); math.IsNaN(v) || v < 0 || d < 0 {
				t.Fatalf("%v s: %s", v, data)
			}
		}
		if w.Seconds <= 0 || w.Utilisation > 1 || w.Iterations < 0 || w.Beside < 0 || w.End.IsZero() || w.Peak.Sign() < 0 || w.Peak.Value() < 0 {
			t.Fatalf("%+v: %s", w, data)
		}
		again, err := json.Marshal(w)
		if err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		c.Status.Devices[0].Data.Raw = again
		if _, ok := Window(c); !ok {
			t.Fatalf("written again as %s it is none: %s", again, data)
		}
	})
}
