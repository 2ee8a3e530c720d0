package trace

import (
	"encoding/csv"
	"io"
	"strconv"

	"weft.dev/weft/internal/cluster"
)

// WriteJobs writes jobs in the form that Read reads as "csv", in order: what a job log states, memory and host
// resources left out. The columns of time are only written for timed jobs.
func WriteJobs(w io.Writer, jobs []cluster.Job, timed bool) error {
	header := []string{"id", "model", "batch", "workers", "floor", "class", "user"}
	if timed {
		header = append(header, "submit_s", "duration_s")
	}
	out := csv.NewWriter(w)
	rows := [][]string{header}
	for i := range jobs {
		j := &jobs[i]
		row := []string{j.ID, j.Model, j.Batch, strconv.Itoa(j.Workers), decimal(j.Floor), j.Class.String(), j.User}
		if timed {
			row = append(row, decimal(j.Submit.Seconds()), decimal(j.Duration.Seconds()))
		}
		rows = append(rows, row)
	}
	return out.WriteAll(rows)
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
