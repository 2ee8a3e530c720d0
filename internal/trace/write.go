package trace

import (
	"encoding/csv"
	"io"
	"strconv"

	"weft.dev/weft/internal/cluster"
)

// WriteJobs writes jobs in the form that Read reads as "csv", in order: what a job log states, memory and host
// resources left out.
func WriteJobs(w io.Writer, jobs []cluster.Job) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"id", "model", "batch", "workers", "floor", "class", "user", "submit_s", "duration_s"}}
	for i := range jobs {
		j := &jobs[i]
		rows = append(rows, []string{j.ID, j.Model, j.Batch, strconv.Itoa(j.Workers), decimal(j.Floor), j.Class.String(), j.User,
			decimal(j.Submit.Seconds()), decimal(j.Duration.Seconds())})
	}
	return out.WriteAll(rows)
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
