package profile

import (
	"testing"

	"weft.dev/weft/internal/unit"
)

// four is four workers of twelve levels each whose sums hardly ever agree.
func four() (profiles []Profile) {
	shape, _ := NamedShape("resnet50-w4")
	for i := range unit.Bytes(4) {
		profiles = append(profiles, New(unit.GiB, 4*unit.GiB+i*unit.MiB*7, shape))
	}
	return profiles
}

func BenchmarkLoadAdd(b *testing.B) {
	p := four()
	b.ReportAllocs()
	for b.Loop() {
		var load Load
		for _, q := range p {
			load = load.Add(q)
		}
	}
}

func BenchmarkLoadOverflow(b *testing.B) {
	p := four()
	load := Load{}.Add(p[0]).Add(p[1]).Add(p[2])
	b.ReportAllocs()
	for b.Loop() {
		load.Overflow(p[3], 12*unit.GiB)
	}
}
