package unit

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// edges are the values at which integer arithmetic goes wrong.
var edges = []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}

func anyInt64() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.SampledFrom(edges), rapid.Int64())
}

// clamp is the exact value, or the end of the range that it lies beyond.
func clamp(exact *big.Int, least int64) int64 {
	switch low, high := big.NewInt(least), big.NewInt(math.MaxInt64); {
	case exact.Cmp(low) < 0:
		return least
	case exact.Cmp(high) > 0:
		return math.MaxInt64
	}
	return exact.Int64()
}

func TestArithmeticSaturates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyInt64().Draw(t, "a"), anyInt64().Draw(t, "b")
		sum := new(big.Int).Add(big.NewInt(a), big.NewInt(b))
		difference := new(big.Int).Sub(big.NewInt(a), big.NewInt(b))
		for _, c := range []struct {
			what      string
			got, want int64
		}{
			{"Bytes.Add", int64(Bytes(a).Add(Bytes(b))), clamp(sum, math.MinInt64)},
			{"Bytes.Sub", int64(Bytes(a).Sub(Bytes(b))), clamp(difference, 0)},
			{"Time.Add", int64(Time(a).Add(time.Duration(b))), clamp(sum, math.MinInt64)},
			{"Time.Sub", int64(Time(a).Sub(Time(b))), clamp(difference, math.MinInt64)},
		} {
			if c.got != c.want {
				t.Errorf("%s(%d, %d) = %d, want %d", c.what, a, b, c.got, c.want)
			}
		}
	})
}

// absurd are floating-point numbers beyond every integer.
var absurd = []float64{math.Inf(1), math.Inf(-1), math.NaN(), 1e300, -1e300, 1 << 63, -(1 << 63), math.SmallestNonzeroFloat64}

func TestConversionsSaturate(t *testing.T) {
	for _, v := range absurd {
		wantTime, wantBytes := Never, Bytes(math.MaxInt64)
		switch {
		case v == math.SmallestNonzeroFloat64:
			wantTime, wantBytes = 0, 1
		case v < 0:
			wantTime, wantBytes = math.MinInt64, 0
		}
		if got := Seconds(v); got != wantTime {
			t.Errorf("Seconds(%g) = %d, want %d", v, got, wantTime)
		}
		if got := Duration(v); got != time.Duration(wantTime) {
			t.Errorf("Duration(%g) = %d, want %d", v, got, wantTime)
		}
		if got := FromMiB(v); got != wantBytes {
			t.Errorf("FromMiB(%g) = %d, want %d", v, got, wantBytes)
		}
	}
}

func TestSecondsReturn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.Float64Range(-1e6, 1e6).Draw(t, "seconds")
		if back := Seconds(s).Seconds(); math.Abs(back-s) > 1e-9 {
			t.Errorf("%g s come back as %g", s, back)
		}
	})
}

func TestFromMiBRoundsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.Float64Range(0, 1e7).Draw(t, "MiB")
		if b := FromMiB(m); b.MiB() < m || b.MiB() >= m+1/float64(MiB)+1e-9 {
			t.Errorf("%g MiB became %d bytes", m, b)
		}
	})
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]Bytes{
		"1024": 1024, "0": 0, "-0": 0, "1B": 1, "16GiB": 16 * GiB, "16 gib": 16 * GiB, " 512 MiB\t": 512 * MiB, "11GB": 11e9,
		"1.5KiB": 1536, "2K": 2048, "2Ki": 2048, "2KB": 2000, "1T": TiB, "1tb": 1e12, "1e3": 1000, "0.1B": 1, "1e3 M": 1000 * MiB,
		"1e300TiB": math.MaxInt64, "8388608TiB": math.MaxInt64,
	} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%q is read as %d (%v), want %d", text, got, err, want)
		}
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q is read from text as %d (%v), want %d", text, b, err, want)
		}
	}
	for _, text := range []string{"", " ", "GiB", "B", "-1", "-1GiB", "16 GiB GiB", "16XB", "1P", "nan", "NaN GiB", "inf", "-inf",
		"1e999", "one", "1,5GiB", "1 2", "0x1B", "--1"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q is read as %d, want an error", text, got)
		}
	}
}

func FuzzParseBytes(f *testing.F) {
	for _, text := range []string{"16GiB", "512 MiB", "11GB", "1024", "1e300T", "-1", "nan", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if b, err := ParseBytes(text); b < 0 || err != nil && b != 0 {
			t.Errorf("%q is read as %d (%v)", text, b, err)
		}
	})
}

// TestStringReturns: what is printed reads as the same value, up to half of the last digit printed.
func TestStringReturns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bytes(rapid.Int64Range(0, 1<<rapid.IntRange(0, 50).Draw(t, "bits")).Draw(t, "bytes"))
		back, err := ParseBytes(b.String())
		if err != nil {
			t.Fatal(err)
		}
		digit := Bytes(1)
		for _, u := range []struct{ from, digit Bytes }{{KiB, KiB}, {MiB, MiB}, {GiB, GiB / 10}, {TiB, TiB / 10}} {
			if b >= u.from {
				digit = u.digit
			}
		}
		if off := max(back-b, b-back); off > digit/2+1 {
			t.Errorf("%d bytes print as %q", int64(b), b)
		}
	})
}

func TestString(t *testing.T) {
	for b, want := range map[Bytes]string{
		0: "0 B", 1023: "1023 B", KiB: "1 KiB", 512 * MiB: "512 MiB", GiB: "1.0 GiB", 22*GiB + 512*MiB: "22.5 GiB", 3 * TiB / 2: "1.5 TiB",
		-5: "-5 B",
	} {
		if got := b.String(); got != want {
			t.Errorf("%d prints as %q, want %q", int64(b), got, want)
		}
	}
}
