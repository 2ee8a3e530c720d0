package trace

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"weft.dev/weft/internal/shared"
)

func TestMeasuredPairsReadWhatIsKnownOfEachJob(t *testing.T) {
	const text = `source,gpu_type,job_a,batch_a,job_b,batch_b,norm_a,norm_b,alone_a,alone_b,gpu_util_a,gpu_util_b,mem_util_a,mem_used_mib_a,mem_used_mib,colour
s,t4,m,8,n,16,0.8,1.31,12.5,,75,140,30,2048,5000,red
s,t4,m,8,m,8,0.5,0.5,12.5,12.5,75,75,-3,2048,,blue
`
	got, err := ReadMeasuredPairs("p.csv", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := &MeasuredPairs{
		Pairs: []MeasuredPair{
			{Pair: Pair{"s", "t4", "m", "8", "n", "16", 0.8, 1.31}, AloneA: Alone{12.5, 0.75, 0.3, 2048, false},
				AloneB: Alone{Doubted: true}, MemoryMiB: 5000},
			{Pair: Pair{"s", "t4", "m", "8", "m", "8", 0.5, 0.5}, AloneA: Alone{12.5, 0.75, 0, 2048, true},
				AloneB: Alone{12.5, 0.75, 0, 0, false}},
		},
		Notes: []string{
			"line 2: rates above 1 (the first: 1.31) are counted as 1",
			"line 2: gpu_util_b 140: ignored, range widened",
			"line 3: mem_util_a -3: ignored, range widened",
			"columns not used: colour",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A column without a value above 1 holds shares: 0.75 is three quarters, not less than one per cent.
func TestMeasuredPairsTellSharesFromPercent(t *testing.T) {
	const head = "job_a,job_b,norm_a,norm_b,gpu_util_a,gpu_util_b\n"
	for _, x := range []struct {
		rows string
		want float64
	}{{"m,n,1,1,0.75,0.2\n", 0.75}, {"m,n,1,1,0.75,20\n", 0.0075}, {"m,n,1,1,75,20\n", 0.75}} {
		got, err := ReadMeasuredPairs("p.csv", strings.NewReader(head+x.rows))
		if err != nil {
			t.Fatal(err)
		}
		if u := got.Pairs[0].AloneA.GPUUtil; u != x.want {
			t.Errorf("%q: %v, want %v", x.rows, u, x.want)
		}
	}
}

func TestMeasuredPairsRefuseRatesThatCannotBe(t *testing.T) {
	for _, rate := range []string{"0", "-1", "", "NaN", "fast", "1e9"} {
		text := "job_a,job_b,norm_a,norm_b\nm,n,0.5," + rate + "\n"
		if got, err := ReadMeasuredPairs("p.csv", strings.NewReader(text)); err == nil {
			t.Errorf("rate %q was accepted: %+v", rate, got.Pairs)
		}
	}
	_, err := ReadMeasuredPairs("p.csv", strings.NewReader("job_a,job_b,norm_a,norm_b\nm,n,0,1\n"))
	if err == nil || !strings.Contains(err.Error(), "norm_a 0: must be positive") {
		t.Errorf("a rate of 0: %v", err)
	}
}

// The published pairs read as ReadPairs reads them, and every job of Gavel's has its standalone rate.
func TestMeasuredPairsAgreeWithPairs(t *testing.T) {
	text, err := os.ReadFile(shared.Data(t, "interference/pairs.csv"))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := ReadPairs("pairs.csv", strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	rich, err := ReadMeasuredPairs("pairs.csv", strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if len(plain) != len(rich.Pairs) {
		t.Fatalf("%d pairs, and %d with features", len(plain), len(rich.Pairs))
	}
	for i, p := range rich.Pairs {
		if p.Pair != plain[i] {
			t.Fatalf("pair %d: %+v, want %+v", i, p.Pair, plain[i])
		}
		if p.AloneA.Rate <= 0 || p.AloneB.Rate <= 0 || p.AloneA.Doubted || p.AloneB.Doubted {
			t.Fatalf("pair %d has no standalone rates: %+v", i, p)
		}
	}
}

func FuzzReadMeasuredPairs(f *testing.F) {
	f.Add("job_a,job_b,norm_a,norm_b,gpu_util_a,mem_used_mib\nm,n,0.5,1,75,1\n")
	f.Add("job_a,job_b,norm_a,norm_b\n\"m,n\n")
	f.Add("job_a\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ReadMeasuredPairs("f", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, p := range got.Pairs {
			for _, a := range []Alone{p.AloneA, p.AloneB} {
				if !(a.GPUUtil >= 0 && a.GPUUtil <= 1 && a.MemUtil >= 0 && a.MemUtil <= 1 && a.Rate >= 0 && a.MemoryMiB >= 0) {
					t.Fatalf("%q gives %+v", text, a)
				}
			}
			if !(p.NormA > 0 && p.NormB > 0) {
				t.Fatalf("%q gives rates %v and %v", text, p.NormA, p.NormB)
			}
		}
	})
}
