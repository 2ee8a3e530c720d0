package fillup

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// TestPairwise compares with the sum in 200 bits. The bound is that of pairwise summation, generously: 20 roundings.
func TestPairwise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float64Range(0, 1e7), 0, 700).Draw(t, "values")
		exact := new(big.Float).SetPrec(200)
		for _, x := range v {
			exact.Add(exact, big.NewFloat(x))
		}
		want, _ := exact.Float64()
		if got := pairwise(v); math.Abs(got-want) > 20*0x1p-53*want+0x1p-1000 {
			t.Fatalf("sum of %d values %v, want %v", len(v), got, want)
		}
	})
}
