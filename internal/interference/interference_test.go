package interference

import (
	"encoding/csv"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/shared"
)

var a, b, c = Config{Model: "a"}, Config{Model: "a", Batch: "8"}, Config{"c", "16"}

func added(t testing.TB, table *Table, x, y Config) float64 {
	t.Helper()
	i, known := table.Lookup(x)
	l, also := table.Lookup(y)
	if !known || !also {
		t.Fatalf("%v or %v is not in the table", x, y)
	}
	return table.Added(i, l)
}

func TestAdded(t *testing.T) {
	type measurement struct {
		a, b         Config
		rateA, rateB float64
	}
	inf := math.Inf(1)
	for _, test := range []struct {
		what string
		rows []measurement
		x, y Config
		want float64
	}{
		{"as measured", []measurement{{a, b, 0.5, 0.8}}, a, b, 1},
		{"of the other", []measurement{{a, b, 0.5, 0.8}}, b, a, 0.25},
		{"no pair of its own", []measurement{{a, b, 0.5, 0.8}}, a, a, inf},
		{"another pair", []measurement{{a, b, 0.5, 0.8}, {b, c, 1, 1}}, a, c, inf},
		{"above 1", []measurement{{a, b, 1.25, 100}}, a, b, 0},
		{"worse later", []measurement{{a, b, 0.8, 1}, {a, b, 0.5, 1}}, a, b, 1},
		{"worse earlier", []measurement{{a, b, 0.5, 1}, {a, b, 0.8, 1}}, a, b, 1},
		{"worse the other way round", []measurement{{a, b, 0.8, 1}, {b, a, 1, 0.5}}, a, b, 1},
		{"twin, first is worse", []measurement{{a, a, 0.5, 0.8}}, a, a, 1},
		{"twin, second is worse", []measurement{{a, a, 0.8, 0.5}}, a, a, 1},
		{"rate 0", []measurement{{a, b, 0, 1}}, a, b, inf},
		{"rate 0 stays the worst", []measurement{{a, b, 0, 1}, {a, b, 0.9, 1}}, a, b, inf},
		{"rate 0 comes later", []measurement{{a, b, 0.9, 1}, {a, b, 0, 1}}, a, b, inf},
		{"negative", []measurement{{a, b, -0.5, 1}}, a, b, inf},
		{"not a number", []measurement{{a, b, math.NaN(), 1}, {a, b, 1, 1}}, a, b, inf},
		{"next to nothing", []measurement{{a, b, math.SmallestNonzeroFloat64, 1}}, a, b, inf},
	} {
		t.Run(test.what, func(t *testing.T) {
			table := NewTable()
			for _, m := range test.rows {
				table.Add(m.a, m.b, m.rateA, m.rateB)
			}
			if got := added(t, table, test.x, test.y); got != test.want {
				t.Errorf("%v adds %v to %v, want %v", test.y, got, test.x, test.want)
			}
		})
	}
}

// TestTable: whatever the order of measurements, the worst of a pair counts; configurations are numbered as they appear.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, worst, order := NewTable(), map[[2]Config]float64{}, []Config(nil)
		record := func(x, y Config, rate float64) {
			if !slices.Contains(order, x) {
				order = append(order, x)
			}
			key := [2]Config{x, y}
			if known, ok := worst[key]; !ok || rate < known {
				worst[key] = rate
			}
		}
		drawConfig := rapid.Custom(func(t *rapid.T) Config {
			return Config{rapid.SampledFrom([]string{"x", "y"}).Draw(t, "model"), rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "batch")}
		})
		rate := rapid.Float64Range(0, 1.2)
		for range rapid.IntRange(0, 20).Draw(t, "rows") {
			x, y := drawConfig.Draw(t, "a"), drawConfig.Draw(t, "b")
			rateX, rateY := rate.Draw(t, "rate a"), rate.Draw(t, "rate b")
			table.Add(x, y, rateX, rateY)
			record(x, y, rateX)
			record(y, x, rateY)
		}
		if table.Len() != len(order) {
			t.Fatalf("%d configurations, want %d", table.Len(), len(order))
		}
		for i, x := range order {
			if got, ok := table.Lookup(x); !ok || got != i || table.Config(i) != x {
				t.Fatalf("%v has the number %d, want %d", x, got, i)
			}
			for l, y := range order {
				want := math.Inf(1)
				if rate, ok := worst[[2]Config{x, y}]; ok && rate > 0 {
					want = max(0, 1/rate-1)
				}
				if got := table.Added(i, l); got != want {
					t.Fatalf("%v adds %v to %v, want %v", y, got, x, want)
				}
			}
		}
		if i, ok := table.Lookup(Config{"z", ""}); ok {
			t.Fatalf("an unknown configuration has the number %d", i)
		}
	})
}

func TestConfigString(t *testing.T) {
	if a.String() != "a" || b.String() != "a:8" {
		t.Errorf("%q and %q", a.String(), b.String())
	}
}

func TestCatalogue(t *testing.T) {
	if gpus := CatalogueGPUs(); !slices.Equal(gpus, []string{"p100", "v100"}) {
		t.Errorf("GPU models %v", gpus)
	}
	if n := Catalogue("h100").Len() + Catalogue("P100").Len() + Catalogue("").Len(); n != 0 {
		t.Errorf("%d configurations of GPUs that were not measured", n)
	}
	seen := map[string]bool{}
	for _, row := range catalogueRows() {
		if len(row) != 7 {
			t.Fatalf("row %v", row)
		}
		for _, cell := range row[5:] {
			if v, err := strconv.ParseFloat(cell, 64); err != nil || !(v > 0 && v <= 1) {
				t.Errorf("rate %q in row %v", cell, row)
			}
		}
		if key := strings.Join(row[:5], ","); seen[key] {
			t.Errorf("pair %s stands twice", key)
		} else {
			seen[key] = true
		}
	}
	for _, gpu := range CatalogueGPUs() {
		table := Catalogue(gpu)
		if table.Len() != 26 {
			t.Errorf("%s: %d configurations, want 26", gpu, table.Len())
		}
		for i := range table.Len() {
			for l := range table.Len() {
				v := table.Added(i, l)
				if math.IsInf(v, 1) != math.IsInf(table.Added(l, i), 1) || !(v >= 0) {
					t.Errorf("%s: %v adds %v to %v, which adds %v", gpu, table.Config(l), v, table.Config(i), table.Added(l, i))
				}
			}
		}
	}
}

// TestCatalogueAgreesWithTheCampaign: the catalogue holds every pair of the campaign it was taken from and no other,
// with rates above 1 as 1, rounded to four digits.
func TestCatalogueAgreesWithTheCampaign(t *testing.T) {
	f, err := os.Open(shared.Data(t, "interference/pairs.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, name := range rows[0] {
		at[name] = i
	}
	rates := map[string][]string{}
	for _, row := range catalogueRows() {
		rates[strings.Join(row[:5], ",")] = row[5:]
	}
	for _, row := range rows[1:] {
		cell := func(name string) string { return row[at[name]] }
		if cell("source") != "gavel_oracle" || !slices.Contains(CatalogueGPUs(), cell("gpu_type")) {
			continue
		}
		key := strings.Join([]string{cell("gpu_type"), cell("job_a"), cell("batch_a"), cell("job_b"), cell("batch_b")}, ",")
		want, ok := rates[key]
		if !ok {
			t.Errorf("the catalogue lacks %s", key)
			continue
		}
		delete(rates, key)
		for i, name := range []string{"norm_a", "norm_b"} {
			measured, err := strconv.ParseFloat(cell(name), 64)
			if err != nil {
				t.Fatal(err)
			}
			if got := rate(want[i]); math.Abs(got-min(1, measured)) > 0.00005+1e-12 {
				t.Errorf("%s: %s %v, the catalogue says %v", key, name, measured, got)
			}
		}
	}
	for key := range rates {
		t.Errorf("the campaign lacks %s", key)
	}
}
