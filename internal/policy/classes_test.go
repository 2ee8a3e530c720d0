package policy_test

import "testing"

func TestClasses(t *testing.T) {
	const tiny, medium, jumbo = 0.25, 0.5, 0.51
	for _, c := range []struct {
		what string
		util []float64
		want int
	}{
		{"tiny and tiny", []float64{tiny, tiny}, 1},
		{"tiny and medium", []float64{tiny, medium}, 1},
		{"tiny and jumbo", []float64{tiny, jumbo}, 1},
		{"tiny and the largest", []float64{0.01, 1}, 1},
		{"medium and medium", []float64{medium, 0.26}, 1},
		{"medium and jumbo", []float64{0.26, jumbo}, 2},
		{"jumbo and jumbo", []float64{jumbo, jumbo}, 2},
		{"never three", []float64{tiny, tiny, tiny}, 2},
	} {
		if got := gpusFor(t, "classes", c.util, make([]float64, len(c.util))); got != c.want {
			t.Errorf("%s: %d GPUs, want %d", c.what, got, c.want)
		}
	}
}
