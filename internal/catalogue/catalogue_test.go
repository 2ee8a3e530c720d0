package catalogue

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// mostBytes keeps the embedded catalogue a small part of the program.
const mostBytes = 150_000

// name is what a model, GPU or source may be called: nothing that needs quoting in a CSV file or a shell.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// batch is a whole number without leading zeros, which compare relies on.
var batch = regexp.MustCompile(`^([1-9][0-9]*)?$`)

func TestFileIsWellFormed(t *testing.T) {
	if len(figures) > mostBytes {
		t.Errorf("catalogue.csv has %d bytes, more than %d", len(figures), mostBytes)
	}
	lines := strings.Split(figures, "\n")
	if lines[0] != header || lines[len(lines)-1] != "" {
		t.Fatalf("catalogue.csv begins with %q and ends with %q", lines[0], lines[len(lines)-1])
	}
	for i, l := range lines[1 : len(lines)-1] {
		f := strings.Split(l, ",")
		if len(f) != 11 {
			t.Fatalf("line %d has %d fields: %q", i+2, len(f), l)
		}
		for _, at := range []int{3, 4, 5, 6, 7} {
			if f[at] == "" {
				continue
			}
			if v, err := strconv.ParseFloat(f[at], 64); err != nil || !(v > 0) || math.IsInf(v, 0) {
				t.Errorf("line %d, field %d: %q is no positive number", i+2, at+1, f[at])
			} else if at < 6 && f[at] != digits(v) {
				t.Errorf("line %d, field %d: %q has more than four digits", i+2, at+1, f[at])
			}
		}
	}
}

func TestEntriesAreValid(t *testing.T) {
	all := All()
	if len(all) < 300 {
		t.Fatalf("only %d entries", len(all))
	}
	seen := map[[4]string]bool{}
	for _, e := range all {
		id := [4]string{e.Model, e.Batch, e.GPU, e.Source}
		if seen[id] {
			t.Errorf("%v is there twice", id)
		}
		seen[id] = true
		if !name.MatchString(e.Model) || !batch.MatchString(e.Batch) || !name.MatchString(e.Source) || e.Source == "default" {
			t.Errorf("%v: a name is not well-formed", id)
		}
		if _, known := memory[e.GPU]; e.GPU != "" && !known || e.GPU != strings.ToLower(e.GPU) {
			t.Errorf("%v: GPU %q has no memory size", id, e.GPU)
		}
		if e.Peak > memory[e.GPU] && e.GPU != "" {
			t.Errorf("%v: peak %v is more than a %s has", id, e.Peak, e.GPU)
		}
		if e.GPUUtil > 1 || e.MemUtil > 1 || e.Persistent > e.Peak {
			t.Errorf("%v: out of range: %+v", id, e)
		}
		if e.Rate == 0 && e.Peak == 0 && e.GPUUtil == 0 && e.Shape == "" {
			t.Errorf("%v says nothing", id)
		}
		if _, known := profile.NamedShape(e.Shape); !known {
			t.Errorf("%v: no shape %q", id, e.Shape)
		}
		if e.Licence == "" || e.Licence != licences[e.Source] {
			t.Errorf("%v: licence %q, its source has %q", id, e.Licence, licences[e.Source])
		}
	}
	if !slices.IsSortedFunc(all, compare) {
		t.Error("entries are not in order")
	}
}

// TestDocumented holds docs/catalogue.md to name every source with its licence and its number of entries.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/catalogue.md")
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range All() {
		count[e.Source]++
	}
	for source, n := range count {
		row := regexp.MustCompile(fmt.Sprintf("(?m)^\\| `%s` \\| %d \\| .* \\| %s \\|$", source, n, regexp.QuoteMeta(licences[source])))
		if !row.Match(text) {
			t.Errorf("docs/catalogue.md has no row of %s with %d entries and licence %s", source, n, licences[source])
		}
	}
	for gpu, size := range memory {
		if row := fmt.Sprintf("| `%s` | %.0f GiB |", gpu, size.GiB()); !strings.Contains(string(text), row) {
			t.Errorf("docs/catalogue.md has no row %q", row)
		}
	}
}

// TestKnownFigures are figures read off the sources by hand.
func TestKnownFigures(t *testing.T) {
	for _, want := range []Entry{
		{Model: "ResNet-18", Batch: "16", GPU: "v100", Rate: 77.32, Source: "gavel_oracle", Licence: "MIT"},
		{Model: "A3C", GPU: "k80", Rate: 3.829, Source: "gavel_oracle", Licence: "MIT"},
		{Model: "bert", Batch: "8", GPU: "a100-40gb", Rate: 8.286, GPUUtil: .8875, MemUtil: .6765, Peak: 18635 * unit.MiB,
			Source: "miso", Licence: "MIT"}, // 0.12069 s
		{Model: "roberta-base", Batch: "24", GPU: "v100", Rate: 3.639, Peak: unit.FromMiB(13267.2), Source: "titan", Licence: "MIT"},
		{Model: "vgg16", Batch: "100", GPU: "p100", Rate: 1.52, Peak: unit.FromMiB(10445.2), Source: "salus",
			Licence: "Apache-2.0"}, // 822 iterations in 540.832 s
		{Model: "vgg19", Batch: "16", Rate: 9.174, Source: "muri", Licence: "Apache-2.0"}, // 109 ms
		{Model: "bert", Batch: "64", GPU: "a100", Rate: 6.031, Source: "elasticflow", Licence: "Apache-2.0"},
		{Model: "bert", Batch: "4", GPU: "t4", Rate: 2.196, Source: "pollux", Licence: "Apache-2.0"}, // 0.455324 s
		{Model: "xlnet_large_cased", GPU: "a100-40gb", Peak: 19330 * unit.MiB, Source: "carma", Licence: "Apache-2.0"},
	} {
		if got, ok := Find(want.Model, want.Batch, strings.ToUpper(want.GPU)); !ok || got != want {
			t.Errorf("Find(%s, %s, %s) = %+v, %v, want %+v", want.Model, want.Batch, want.GPU, got, ok, want)
		}
	}
}

// TestGavelConfigurations wants all 26 with a rate on each of three GPU models, by the names of the pair table.
func TestGavelConfigurations(t *testing.T) {
	configs := map[string]int{}
	for _, e := range Search("GAVEL") {
		if e.Rate == 0 {
			t.Errorf("%+v has no rate", e)
		}
		configs[e.Model+":"+e.Batch]++
	}
	for c, n := range configs {
		if n != 3 {
			t.Errorf("%s is there on %d GPU models", c, n)
		}
	}
	if len(configs) != 26 {
		t.Errorf("%d configurations: %v", len(configs), configs)
	}
}

func TestFindIsExact(t *testing.T) {
	for _, c := range [][3]string{
		{"resnet-18", "16", "v100"}, {"ResNet-18", "", "v100"}, {"ResNet-18", "16", "v10"}, {"ResNet-18", "16", ""}, {"", "", ""},
	} {
		if e, ok := Find(c[0], c[1], c[2]); ok || e != (Entry{}) {
			t.Errorf("Find(%q) = %+v, %v", c, e, ok)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		e := rapid.SampledFrom(All()).Draw(t, "entry")
		got, ok := Find(e.Model, e.Batch, e.GPU)
		if !ok || got.Model != e.Model || got.Batch != e.Batch || got.GPU != e.GPU || got.Source > e.Source {
			t.Fatalf("Find = %+v, %v", got, ok)
		}
	})
}

// TestSearch compares with the definition: any part of a name, GPU or source finds its entry, and all found hold it.
func TestSearch(t *testing.T) {
	if len(Search("")) != len(All()) || len(Search("no such model")) != 0 || len(Search("a3c:")) != 3 {
		t.Error("the empty text must find all, an unknown one none, a whole name its entries")
	}
	rapid.Check(t, func(t *rapid.T) {
		e := rapid.SampledFrom(All()).Draw(t, "entry")
		whole := rapid.SampledFrom([]string{e.Model + ":" + e.Batch, e.Source}).Draw(t, "field")
		from := rapid.IntRange(0, len(whole)-1).Draw(t, "from")
		text := strings.ToUpper(whole[from:rapid.IntRange(from+1, len(whole)).Draw(t, "to")])
		found := Search(text)
		if !slices.Contains(found, e) || !slices.IsSortedFunc(found, compare) {
			t.Fatalf("Search(%q) misses %+v, or is out of order", text, e)
		}
		for _, f := range found {
			if !strings.Contains(strings.ToUpper(f.Model+":"+f.Batch+"|"+f.GPU+"|"+f.Source), text) {
				t.Fatalf("Search(%q) found %+v", text, f)
			}
		}
	})
}

func TestCallersOwnTheirLists(t *testing.T) {
	for _, list := range [][]Entry{All(), Search("")} {
		list[0].Model = "changed"
		if All()[0].Model == "changed" {
			t.Fatal("a caller changed the catalogue")
		}
	}
}

func TestDefaultIsPessimistic(t *testing.T) {
	for _, e := range All() {
		d := Default(strings.ToUpper(e.GPU))
		if d.GPUUtil < e.GPUUtil || d.MemUtil < e.MemUtil || d.Persistent < e.Peak || d.GPU != e.GPU {
			t.Fatalf("the default %+v asks less than %+v", d, e)
		}
		p, ok := d.Profile()
		if !ok || p.Peak() != d.Peak || p.Persistent != d.Peak {
			t.Fatalf("the default's profile is %+v", p)
		}
	}
	if d := Default("quantum-9000"); d.Peak != unit.TiB || d.Rate != 0 {
		t.Errorf("on an unknown GPU: %+v", d)
	}
}

func TestProfile(t *testing.T) {
	for _, c := range []struct {
		e          Entry
		persistent unit.Bytes // of the profile
		known      bool
	}{
		{Entry{}, 0, false},
		{Entry{Shape: "resnet50-w0"}, 0, false},
		{Entry{Peak: unit.GiB}, unit.GiB, true},
		{Entry{Peak: unit.GiB, Persistent: unit.MiB}, unit.GiB, true},
		{Entry{Peak: unit.GiB, Shape: "resnet50-w0"}, unit.GiB, true},
		{Entry{Peak: unit.GiB, Persistent: unit.MiB, Shape: "resnet50-w0"}, unit.MiB, true},
		{Entry{Peak: unit.GiB, Persistent: unit.MiB, Shape: "never measured"}, unit.GiB, true},
	} {
		if p, known := c.e.Profile(); p.Persistent != c.persistent || known != c.known || known && p.Peak() != c.e.Peak {
			t.Errorf("profile of %+v is %+v, %v", c.e, p, known)
		}
	}
}
