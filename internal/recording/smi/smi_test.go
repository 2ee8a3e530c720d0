package smi

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

const head = "timestamp, index, utilization.gpu [%], memory.used [MiB]\n"

// samples are rows of GPU 0, 100 ms apart.
func samples(cells ...string) string {
	var b strings.Builder
	for i, c := range cells {
		fmt.Fprintf(&b, "2026/03/02 08:00:%02d.%d00, 0, %s\n", i/10, i%10, c)
	}
	return b.String()
}

func read(t *testing.T, text string, columns ...string) []recording.Recording {
	t.Helper()
	rs, err := Read("x", strings.NewReader(text), columns, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func TestUnits(t *testing.T) {
	for text, want := range map[string]unit.Bytes{
		head + samples("5 %, 100 MiB"):                                                          100 * unit.MiB,
		head + samples("5, 100"):                                                                100 * unit.MiB,
		"timestamp,index,utilization.gpu,memory.used\n" + samples("5,100"):                      100 * unit.MiB,
		"timestamp,index,utilization.gpu,memory.used [GiB]\n" + samples("5,2"):                  2 * unit.GiB,
		"timestamp,index,utilization.gpu,memory.used\n" + samples("5,2 GiB"):                    2 * unit.GiB,
		"\ufefftimestamp,gpu,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_DEV_FB_USED\r\n" + samples("5,100\r"): 100 * unit.MiB,
		"time,gpu,memory.used\n1772438400.5,0,100\n":                                            100 * unit.MiB,
		"time,gpu,memory.used\n2026-03-02T08:00:00Z,0,100\n":                                    100 * unit.MiB,
	} {
		r := read(t, text)[0]
		if got := r.Allocated.Points[0].Bytes; got != want || !r.Outside {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestMissingIsNotZero(t *testing.T) {
	text := head + samples("[N/A], 100 MiB", "[N/A], [N/A]", "[N/A], [Unknown Error]", "[N/A], [Insufficient Permissions]", "[N/A], -4 MiB", "[N/A], 9e30 MiB", "[N/A], 300 MiB")
	r := read(t, text)[0]
	least, most := r.Allocated.Range(0, r.Allocated.End)
	if r.Missing != 5 || least != 100*unit.MiB || most != 300*unit.MiB || r.Utilisation != nil {
		t.Errorf("%d missing, %v to %v, utilisation %v", r.Missing, least, most, r.Utilisation)
	}
	if notes := strings.Join(r.Notes, "; "); !strings.Contains(notes, "MIG mode hides it") || !strings.Contains(notes, "5 of 7 samples are missing") {
		t.Errorf("notes %q", notes)
	}
}

func TestBusy(t *testing.T) {
	r := read(t, head+samples("10 %, 1 MiB", "[N/A], 1 MiB", "30 %, 1 MiB", "140 %, 1 MiB"))[0]
	if r.Utilisation == nil || *r.Utilisation != 0.2 {
		t.Errorf("utilisation %v, want the mean of those that are known", r.Utilisation)
	}
}

func TestLinesBetween(t *testing.T) {
	text := "NVIDIA-SMI has trouble\n" + head + samples("1 %, 5 MiB") + "GPU is lost\n" + head + samples("1 %, 5 MiB") + "2026/03/02 08:00:09.000, 0, 1"
	r := read(t, text)[0]
	if r.SkippedLines != 4 || r.Allocated.Points[0].Bytes != 5*unit.MiB {
		t.Errorf("%d lines skipped, want 4", r.SkippedLines)
	}
}

func TestGPUsApart(t *testing.T) {
	text := "timestamp, uuid, memory.used [MiB]\n"
	for i := range 20 {
		text += fmt.Sprintf("2026/03/02 08:00:%02d.000, GPU-a, %d MiB\n2026/03/02 08:00:%02d.000, GPU-b, 7 MiB\n", i, 1000+i%5*100, i)
	}
	rs := read(t, text)
	if len(rs) != 2 || rs[0].Device != "GPU-a" || rs[1].Device != "GPU-b" {
		t.Fatalf("%d recordings", len(rs))
	}
	if _, most := rs[1].Allocated.Range(0, rs[1].Allocated.End); most != 7*unit.MiB {
		t.Errorf("peak of GPU-b %v", most)
	}
	if a := recording.Analyse(rs[0], 12); a.Period != 5*time.Second || a.Profile.Persistent != 1000*unit.MiB {
		t.Errorf("period %v, persistent %v", a.Period, a.Profile.Persistent)
	}
	if one, err := recording.Choose("x", rs, "GPU-b"); err != nil || len(one) != 1 || one[0].Device != "GPU-b" {
		t.Errorf("chosen %v, %v", one, err)
	}
	if _, err := recording.Choose("x", rs, "3"); err == nil || !strings.Contains(err.Error(), `no GPU "3"`) {
		t.Errorf("chosen nothing: %v", err)
	}
}

func TestWithoutTimes(t *testing.T) {
	text := "index, memory.used [MiB]\n" + strings.Repeat("0, 5 MiB\n0, 8 MiB\n", 9)
	a := recording.Analyse(read(t, text)[0], 12)
	if a.Period != 0 || a.Recording.Clock != recording.Even || a.Verdict.Share < 0.4 {
		t.Errorf("period %v, clock %v, valley for %v", a.Period, a.Recording.Clock, a.Verdict.Share)
	}
}

func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		samples("1 %, 5 MiB"):                     "no header",
		"timestamp, index, utilization.gpu [%]\n": `no column "memory.used"`,
		head + samples("1 %, [N/A]"):              "no memory values: 1 samples",
		"":                                        "no header and no sample",
		"nothing\nof this\n":                      "no header and no sample",
		head + strings.Repeat("x", maxLine+5):     "a line is longer",
	} {
		_, err := Read("x", strings.NewReader(text), nil, nil)
		var faults trace.Errors
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
	if r := read(t, samples("1 %, 5 MiB"), "timestamp", "index", "utilization.gpu", "memory.used"); r[0].Allocated.Points[0].Bytes != 5*unit.MiB {
		t.Errorf("with --columns: %v", r[0].Allocated.Points)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(head + samples("5 %, 100 MiB", "[N/A], [N/A]", "6 %, 200 MiB"))
	f.Add("index,memory.used\n0,5\nERR!\n1,1e400\n,-1\n0,NaN\n")
	f.Add("time,gpu,fbusd\n1e13,0,5\n0,0,6\n")
	f.Fuzz(func(t *testing.T, text string) {
		rs, err := Read("x", strings.NewReader(text), nil, nil)
		var faults trace.Errors
		if err != nil && !errors.As(err, &faults) {
			t.Fatal(err)
		}
		for _, r := range rs {
			if fault := recording.Analyse(r, 12).Check(); fault != nil {
				t.Fatalf("%q: %v", text, fault)
			}
		}
	})
}
