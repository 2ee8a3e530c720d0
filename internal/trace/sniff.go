package trace

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// open looks at the first bytes: gzip is inflated, other binary forms are refused by name.
func open(file string, r io.Reader) (*bufio.Reader, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	start, err := b.Peek(4)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if strings.HasPrefix(string(start), "\x1f\x8b") {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("inflate %s: %w", file, err)
		}
		return bufio.NewReaderSize(z, 1<<16), nil
	}
	for _, form := range []struct{ start, name string }{
		{"PK\x03\x04", "a zip archive (or a spreadsheet)"}, {"PAR1", "a Parquet file"}, {"\xff\xfe", "UTF-16 text"},
		{"\xfe\xff", "UTF-16 text"}, {"\x28\xb5\x2f\xfd", "zstd-compressed"}, {"SQLi", "an SQLite database"},
	} {
		if strings.HasPrefix(string(start), form.start) {
			return nil, Errors{{Code: "binary", File: file, Message: "this is " + form.name + ", not a text table",
				Fix: "export it as CSV in UTF-8; gzip is accepted"}}
		}
	}
	return b, nil
}

// firstByte is the first byte of the text that is not blank or part of a byte order mark, 0 at the end.
func firstByte(r *bufio.Reader) byte {
	start, _ := r.Peek(512) // an error shows at the first read
	text := strings.TrimLeft(strings.TrimPrefix(string(start), "\xef\xbb\xbf"), " \t\r\n")
	if text == "" {
		return 0
	}
	return text[0]
}

// isJSON is the fault of JSON where a table is wanted.
func isJSON(want []string) *Error {
	return &Error{Code: "json", Line: 1, Message: "this is JSON, not a table with a header row",
		Fix: "write a table with the columns " + strings.Join(want, ", ") + "; the only JSON that is read is the original Philly " +
			"log, by --format philly (for Slurm: " + sacctExport + ")"}
}

// headless is the fault of a first row that is data where the header must stand, or nil.
func headless(cells, want []string) *Error {
	if isPAI(cells) {
		return &Error{Code: "foreign_format", Line: 1, Row: clean(strings.Join(cells, ",")),
			Message: "this is pai_task of the Alibaba PAI 2020 trace: no header row, and GPUs in percent (25 is a quarter, " +
				"800 is 8 GPUs); it is not an accepted format",
			Why: fmt.Sprintf("the first row has %d cells of data where the header must stand", len(cells)),
			Fix: "write JOBS.csv with id,model,workers,gpu_milli,submit_s,duration_s: workers and gpu_milli from plan_gpu*inst_num"}
	}
	numbers := 0
	for _, c := range cells {
		if _, err := strconv.ParseFloat(strings.TrimSpace(c), 64); err == nil {
			numbers++
		}
	}
	if numbers == 0 || slices.ContainsFunc(cells, func(c string) bool { return slices.Contains(want, strings.TrimSpace(c)) }) {
		return nil
	}
	return &Error{Code: "no_header", Line: 1, Row: clean(strings.Join(cells, ",")),
		Message: fmt.Sprintf("no header: the first row has %d cells of data, not column names", len(cells)),
		Fix:     "write a header row: " + strings.Join(want, ",")}
}

// misseparated is the fault of a header whose names are separated by something else than the table's separator.
func misseparated(header []string, comma string) *Error {
	if len(header) != 1 || looksLike(header) != "" {
		return nil
	}
	for _, s := range []struct{ separator, name, fix string }{
		{";", "semicolons", "separate cells by commas, and write decimals with a point"},
		{"\t", "tabs", "separate cells by commas"},
		{"|", "bars", "for sacct -P add --format sacct; else separate cells by commas"},
	} {
		if s.separator != comma && strings.Contains(header[0], s.separator) {
			return &Error{Code: "separator", Line: 1, Row: clean(header[0]),
				Message: "cells are separated by " + s.name + ", not by " + separatorName(comma), Fix: s.fix}
		}
	}
	return nil
}

func separatorName(comma string) string {
	if comma == "," {
		return "commas"
	}
	return strconv.Quote(comma)
}

// isPAI recognises a row of pai_task_table: job, task, instances, status, start, end, plan_cpu, plan_mem, plan_gpu, type.
func isPAI(cells []string) bool {
	return len(cells) == 10 && slices.Contains([]string{"Terminated", "Running", "Failed", "Waiting"}, cells[3])
}

// signatures are columns that tell one format from the others, the most special first.
var signatures = []struct {
	format  string
	columns []string
}{
	{"muri", []string{"num_gpu", "resource_time_0"}},
	{"openb", []string{"num_gpu", "gpu_milli", "creation_time"}},
	{"gavel", []string{"job_type", "scale_factor", "total_steps"}},
	{"philly", []string{"timestamp", "num_gpus", "cluster"}},
	{"tiresias", []string{"num_gpu", "submit_time", "iterations", "interval"}},
	{"itp", []string{"submission_time", "num_gpu", "duration"}},
	{"sacct", []string{"JobID", "Submit", "Elapsed"}},
	{"csv", []string{"id", "model"}},
}

// looksLike is the format whose signature a header holds, or "".
func looksLike(header []string) string {
	if len(header) == 1 && strings.Contains(header[0], "|") {
		header = strings.Split(header[0], "|")
	}
	for _, s := range signatures {
		if !slices.ContainsFunc(s.columns, func(c string) bool { return !slices.Contains(header, c) }) {
			return s.format
		}
	}
	return ""
}
