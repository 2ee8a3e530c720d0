package interference

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
)

// catalogue is pair rates that others measured: every pair of 26 training configurations that the Gavel authors ran
// together on one P100 and on one V100 (stanford-futuredata/gavel, oracle_throughputs.json, commit c4fa40097339, MIT
// licence), as shares of the standalone rate rounded to four digits. How the GPU was shared is not stated there.
//
//go:embed catalogue.csv
var catalogue string

// CatalogueGPUs are the GPU models that the catalogue has pairs of, in alphabetical order.
func CatalogueGPUs() []string {
	var gpus []string
	for _, row := range catalogueRows() {
		if !slices.Contains(gpus, row[0]) {
			gpus = append(gpus, row[0])
		}
	}
	return gpus
}

// Catalogue is the built-in table of a GPU model, in lower case. It is empty for a model that was not measured.
func Catalogue(gpu string) *Table {
	t := NewTable()
	for _, row := range catalogueRows() {
		if row[0] == gpu {
			t.Add(Config{row[1], row[2]}, Config{row[3], row[4]}, rate(row[5]), rate(row[6]))
		}
	}
	return t
}

// catalogueRows are the rows below the header: GPU, model and batch of both, rates of both.
func catalogueRows() [][]string {
	lines := strings.Split(strings.TrimSpace(catalogue), "\n")[1:]
	rows := make([][]string, len(lines))
	for i, line := range lines {
		rows[i] = strings.Split(line, ",")
	}
	return rows
}

// rate reads a rate of the embedded file, which a test holds to be numbers in (0, 1].
func rate(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic("interference: catalogue.csv: " + err.Error())
	}
	return v
}
