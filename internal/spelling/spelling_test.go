package spelling

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNearest(t *testing.T) {
	for _, c := range []struct{ word, names, want string }{
		{"pyhton", "perl python python3 ruby", "python"},
		{"python4", "python python3", "python"},
		{"flor", "class floor priority", "floor"},
		{"brt-ft", "bert-ft bert resnet", "bert-ft"},
		{"FLOOR", "floor", "floor"},
		{"ls", "cp ln ps", "ln"}, // both one fault away: the first
		{"x", "y z", ""},         // no letter of it is right
		{"train", "resnet50", ""},
		{"", "a ab", ""},
		{"abcdef", "ab abc", ""},
		{"ä", "ö äh", "äh"},
	} {
		if got := Nearest(c.word, strings.Fields(c.names)); got != c.want {
			t.Errorf("Nearest(%q, %s) = %q, want %q", c.word, c.names, got, c.want)
		}
	}
	if got := Near("bert", []string{"bart", "bert-2", "berta", "bert", "bert"}, 3); strings.Join(got, " ") != "bert bart berta" {
		t.Errorf("near bert: %v", got)
	}
}

func TestFaultsAreADistance(t *testing.T) {
	word := rapid.SliceOfN(rapid.SampledFrom([]rune("abcä")), 0, 8)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := faults(a, b)
		switch {
		case d != faults(b, a):
			t.Fatalf("%d one way, %d the other", d, faults(b, a))
		case (d == 0) != (string(a) == string(b)):
			t.Fatalf("%d faults between %q and %q", d, string(a), string(b))
		case d > max(len(a), len(b)) || d < max(len(a)-len(b), len(b)-len(a)):
			t.Fatalf("%d faults between %q and %q", d, string(a), string(b))
		}
	})
}
