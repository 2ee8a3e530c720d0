package report

import (
	"bytes"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var (
	narrow = Screen{Width: 80}
	broad  = Screen{Width: 120}
)

// tableOf makes a table from rows with cells split at "|"; a cell ending in * or ! is marked.
func tableOf(columns []Column, rows ...string) *Table {
	t := &Table{Columns: columns}
	for _, row := range rows {
		var cells []Cell
		for _, text := range strings.Split(row, "|") {
			c := Cell{Text: text}
			if s, ok := strings.CutSuffix(text, "*"); ok {
				c = Cell{s, Best}
			} else if s, ok := strings.CutSuffix(text, "!"); ok {
				c = Cell{s, Bad}
			}
			cells = append(cells, c)
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// titled makes columns split at "|": "-" before a title means text, "+" means only shown when wide.
func titled(titles string) []Column {
	var columns []Column
	for _, title := range strings.Split(titles, "|") {
		c := Column{Number: true}
		for title[0] == '-' || title[0] == '+' {
			c.Number = c.Number && title[0] != '-'
			c.Wide = c.Wide || title[0] == '+'
			title = title[1:]
		}
		c.Title = title
		columns = append(columns, c)
	}
	return columns
}

func written(t rapid.TB, table *Table, s Screen) string {
	t.Helper()
	var b bytes.Buffer
	if err := table.Write(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func planTable() *Table {
	return tableOf(titled("-METHOD|GPUS|SAVED|MEAN|WORST|+P05|BROKEN|BOUND|TIME|-+LIMITED BY"),
		"dedicated|104|-|100 %|100 %|100 %|0|+97.0 %|0 ms|-",
		"peak|54|48.1 %|94.6 %|85.2 %|86.2 %|0|+2.3 %|2 ms|FloorResident 71 %, FloorSelf 24 %",
		"greedy|54|48.1 %|94.6 %|85.2 %|86.2 %|0|+2.3 %|2 ms|FloorResident 71 %, FloorSelf 24 %",
		"heuristic|54|48.1 %|94.6 %|85.2 %|86.2 %|0|+2.3 %|9 ms|FloorResident 71 %, FloorSelf 24 %",
		"exact (2)|60|42.3 %|95.7 %|85.7 %|86.9 %|0|+13.6 %|14 ms|MaxResidents 58 %, FloorSelf 30 %",
		"lp|53*|49.0 %|94.4 %|85.7 %|86.4 %|0|+0.4 %|61 ms|FloorResident 69 %, FloorSelf 25 %")
}

func simTable() *Table {
	return tableOf(titled("-POLICY|-SHARE|JCT AVG|+MEDIAN|+P95|QUEUE|PEAK|GPU-HOURS|UTIL|+FRAG|BROKEN|+MOVES|+OOM"),
		"fifo|never|3h13m05s|9m40s|14h51m|1m45s|812|1.62 M|48 %|6.1 %|0|0|0",
		"sjf|never|3h12m23s*|9m38s*|14h50m*|1m03s|812|1.62 M|48 %|6.0 %|0|0|0",
		"fifo|floor|3h21m40s|10m05s|15h22m|12s*|598*|1.20 M*|65 %*|4.2 %*|0|1,904|0")
}

// The tables of mock-ups A and B (ux.md). Two places differ from the drawings, which do not agree with each other: in A
// the column after "53*" moves one to the right, as in B, where two blanks always follow a sign; in B the title
// JCT AVG ends above the last digit, as every other title does.
func TestMockUps(t *testing.T) {
	for _, c := range []struct {
		name  string
		table *Table
		s     Screen
		want  string
	}{
		{"A at 80", planTable(), narrow, `
METHOD     GPUS    SAVED    MEAN   WORST  BROKEN    BOUND   TIME
dedicated   104        -   100 %   100 %       0  +97.0 %   0 ms
peak         54   48.1 %  94.6 %  85.2 %       0   +2.3 %   2 ms
greedy       54   48.1 %  94.6 %  85.2 %       0   +2.3 %   2 ms
heuristic    54   48.1 %  94.6 %  85.2 %       0   +2.3 %   9 ms
exact (2)    60   42.3 %  95.7 %  85.7 %       0  +13.6 %  14 ms
lp           53*  49.0 %  94.4 %  85.7 %       0   +0.4 %  61 ms
`},
		{"A at 120", planTable(), broad, `
METHOD     GPUS    SAVED    MEAN   WORST     P05  BROKEN    BOUND   TIME  LIMITED BY
dedicated   104        -   100 %   100 %   100 %       0  +97.0 %   0 ms  -
peak         54   48.1 %  94.6 %  85.2 %  86.2 %       0   +2.3 %   2 ms  FloorResident 71 %, FloorSelf 24 %
greedy       54   48.1 %  94.6 %  85.2 %  86.2 %       0   +2.3 %   2 ms  FloorResident 71 %, FloorSelf 24 %
heuristic    54   48.1 %  94.6 %  85.2 %  86.2 %       0   +2.3 %   9 ms  FloorResident 71 %, FloorSelf 24 %
exact (2)    60   42.3 %  95.7 %  85.7 %  86.9 %       0  +13.6 %  14 ms  MaxResidents 58 %, FloorSelf 30 %
lp           53*  49.0 %  94.4 %  85.7 %  86.4 %       0   +0.4 %  61 ms  FloorResident 69 %, FloorSelf 25 %
`},
		{"A over time", tableOf(titled("-OVER TIME|PEAK|AVERAGE|GPU-HOURS|SAVED"),
			"dedicated|61|38.2|37,589|-", "greedy|46|27.9|27,454|27.0 %"), narrow, `
OVER TIME  PEAK  AVERAGE  GPU-HOURS   SAVED
dedicated    61     38.2     37,589       -
greedy       46     27.9     27,454  27.0 %
`},
		{"B at 80", simTable(), narrow, `
POLICY  SHARE   JCT AVG   QUEUE  PEAK  GPU-HOURS   UTIL  BROKEN
fifo    never  3h13m05s   1m45s   812     1.62 M   48 %       0
sjf     never  3h12m23s*  1m03s   812     1.62 M   48 %       0
fifo    floor  3h21m40s     12s*  598*    1.20 M*  65 %*      0
`},
		{"B at 120", simTable(), broad, `
POLICY  SHARE   JCT AVG  MEDIAN      P95   QUEUE  PEAK  GPU-HOURS   UTIL    FRAG  BROKEN  MOVES  OOM
fifo    never  3h13m05s   9m40s   14h51m   1m45s   812     1.62 M   48 %   6.1 %       0      0    0
sjf     never  3h12m23s*  9m38s*  14h50m*  1m03s   812     1.62 M   48 %   6.0 %       0      0    0
fifo    floor  3h21m40s  10m05s   15h22m     12s*  598*    1.20 M*  65 %*  4.2 %*      0  1,904    0
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want[1:], written(t, c.table, c.s)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func psTable() *Table {
	columns := titled("-ID|-NAME|-USER|-STATE|+PRIO|-GPU|RATE|FLOOR|TIME|-REASON|-+COMMAND")
	columns[1].Shrink = true
	t := tableOf(columns,
		"41|resnet50|ana|running|50|0|98 %|95 %|2h14m||main.py",
		"42|lm-small-with-a-very-long-name-that-fills|ben|running|0|0|41 %!|50 %|1h50m||lm.py",
		"47|模型-训练-🚀-sweep|carl|waiting|10|-|-|90 %|12m|MemoryOverflow gpu1|sweep.py")
	t.Rows[2][3].Mark = Waiting
	return t
}

func TestNamesShortenFirst(t *testing.T) {
	for _, c := range []struct {
		name  string
		width int
		want  string
	}{
		{"as wide as the rest allows", 80, `
ID  NAME             USER  STATE    GPU  RATE  FLOOR   TIME  REASON
41  resnet50         ana   running  0    98 %   95 %  2h14m
42  lm-small-with-~  ben   running  0    41 %!  50 %  1h50m
47  模型-训练-🚀-s~  carl  waiting  -       -   90 %    12m  MemoryOverflow gpu1
`},
		{"never below eight, and nothing else is cut", 40, `
ID  NAME      USER  STATE    GPU  RATE  FLOOR   TIME  REASON
41  resnet50  ana   running  0    98 %   95 %  2h14m
42  lm-smal~  ben   running  0    41 %!  50 %  1h50m
47  模型-训~  carl  waiting  -       -   90 %    12m  MemoryOverflow gpu1
`},
		{"wide", 120, `
ID  NAME                                     USER  STATE    PRIO  GPU  RATE  FLOOR   TIME  REASON               COMMAND
41  resnet50                                 ana   running    50  0    98 %   95 %  2h14m                       main.py
42  lm-small-with-a-very-long-name-that-fi~  ben   running     0  0    41 %!  50 %  1h50m                       lm.py
47  模型-训练-🚀-sweep                       carl  waiting    10  -       -   90 %    12m  MemoryOverflow gpu1  sweep.py
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := written(t, psTable(), Screen{Width: c.width})
			if diff := cmp.Diff(c.want[1:], got); diff != "" {
				t.Errorf("%s\n%s", diff, got)
			}
		})
	}
}

func TestColour(t *testing.T) {
	got := written(t, tableOf(titled("-NAME|RATE"), "a|98 %*", "b|41 %!"), Screen{Color: true})
	want := "NAME  RATE\na     \x1b[1m98 %*\x1b[0m\nb     \x1b[31m41 %!\x1b[0m\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	waiting := &Table{Columns: titled("-STATE"), Rows: [][]Cell{{{"waiting", Waiting}}}}
	if got, want := written(t, waiting, Screen{Color: true}), "STATE\n\x1b[33mwaiting\x1b[0m\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A job name must not be able to drive the terminal or break the table.
func TestHostileText(t *testing.T) {
	got := written(t, tableOf(titled("-NAME|RATE"), "a\x1b[2Jb\nc\u202ed\xff\u2028|1"), narrow)
	if want := "NAME          RATE\na?[2Jb?c?d??     1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Laws of any table: columns stay apart by two blanks or more, so that a program can split rows there; digits of a number
// column end in one place; colour changes nothing but colour; a table that can fit its screen does.
func TestTableLaws(t *testing.T) {
	word := rapid.StringMatching(`[a-zé模🚀0-9.%]{1,12}`)
	rapid.Check(t, func(t *rapid.T) {
		table := &Table{}
		for range rapid.IntRange(1, 6).Draw(t, "columns") {
			table.Columns = append(table.Columns, Column{
				Title: word.Draw(t, "title"), Number: rapid.Bool().Draw(t, "number"),
				Wide: rapid.Bool().Draw(t, "wide"), Shrink: rapid.Bool().Draw(t, "shrink")})
		}
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			var row []Cell
			for range table.Columns {
				row = append(row, Cell{word.Draw(t, "text"), Mark(rapid.IntRange(0, 3).Draw(t, "mark"))})
			}
			table.Rows = append(table.Rows, row)
		}
		s := Screen{Width: rapid.IntRange(20, 130).Draw(t, "width")}
		plain := written(t, table, s)
		l := table.layout(s)
		for n, line := range strings.Split(strings.TrimSuffix(plain, "\n"), "\n") {
			if got := len(regexp.MustCompile(`\s{2,}`).Split(strings.TrimSpace(line), -1)); got != max(len(l.shown), 1) {
				t.Fatalf("row %d splits into %d cells of %d: %q", n, got, len(l.shown), line)
			}
		}
		s.Color = true
		if got := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(written(t, table, s), ""); got != plain {
			t.Fatalf("colour moved cells:\n%s\n%s", got, plain)
		}
		width, left := 0, 0
		for _, line := range strings.Split(plain, "\n") {
			width = max(width, Columns(line))
		}
		for _, i := range l.shown {
			if c := table.Columns[i]; c.Wide || c.Shrink && l.width[i] > leastName {
				left++
			}
		}
		if width > s.Width && left > 0 {
			t.Fatalf("%d columns on a screen of %d, %d columns could give way:\n%s", width, s.Width, left, plain)
		}
	})
}

func TestBestOf(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		values  []float64
		greater bool
		want    []int
	}{
		{[]float64{812, 812, 598}, false, []int{2}}, {[]float64{.48, .48, .65}, true, []int{2}},
		{[]float64{0, 0, 0}, false, nil}, {[]float64{1, 2, 1}, false, []int{0, 2}}, {nil, false, nil},
		{[]float64{nan, 3}, false, nil}, {[]float64{nan, 3, 4}, true, []int{2}}, {[]float64{nan}, true, nil},
	} {
		if diff := cmp.Diff(c.want, BestOf(c.values, c.greater)); diff != "" {
			t.Errorf("%v: %s", c.values, diff)
		}
	}
}
