package trace

import (
	"bufio"
	"fmt"
	"strings"
)

// format is one kind of input. Its reader hands jobs to the stream until the stream stops it.
type format struct {
	name string
	read func(s *Stream, r *bufio.Reader) error
}

// formats in the order that help texts list them.
var formats = []format{
	{"csv", readJobs},
	{"sacct", readSacct},
	{"openb", readOpenb},
	{"philly", readPhilly},
	{"itp", readITP},
	{"gavel", readGavel},
	{"tiresias", readTiresias},
	{"muri", readWhole(readMuri)},
	{"pollux", readWhole(readPollux)},
}

// requests are traces of a kind that cannot be replayed: they hold arrivals of requests, not jobs.
var requests = []string{"azure", "mooncake"}

// Formats is the names Read knows.
func Formats() []string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.name
	}
	return names
}

func findFormat(name, file string) (format, error) {
	for _, f := range formats {
		if f.name == name {
			return f, nil
		}
	}
	e := &Error{Code: "unknown_format", File: file, Column: "--format", Value: clean(name),
		Message: fmt.Sprintf("unknown format %q", clean(name)), Fix: "one of " + strings.Join(Formats(), ", ")}
	for _, r := range requests {
		if r == name {
			e.Message = name + " traces hold arrivals of requests to a model server, without run times: no jobs to place"
			e.Why = "weft replays jobs that hold GPUs from start to end"
		}
	}
	return format{}, Errors{e}
}
