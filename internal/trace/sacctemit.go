package trace

import (
	"fmt"
	"strconv"
	"strings"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// emit turns the runs into jobs, in order of their first row.
func (c *sacctReader) emit() {
	gangs := map[sacctKey][]int{} // components of a heterogeneous job, by its key without them
	for i, run := range c.runs {
		if run.component >= 0 {
			gangs[run.gang()] = append(gangs[run.gang()], i)
		}
	}
	for i, run := range c.runs {
		if run.component < 0 {
			c.job(run, 1)
			continue
		}
		if members := gangs[run.gang()]; members[0] == i {
			c.gang(members)
		}
	}
}

// gang is the key that the components of one heterogeneous job share: their names may differ.
func (r sacctRun) gang() sacctKey {
	id, _, _ := strings.Cut(r.key.id, "+")
	return sacctKey{id: id, user: r.key.user}
}

// gang puts the components with GPUs together. The gang is running while any of them is.
func (c *sacctReader) gang(members []int) {
	gang := c.runs[members[0]]
	gang.key.id = gang.gang().id
	for _, i := range members[1:] {
		run := c.runs[i]
		gang.submitted = min(gang.submitted, run.submitted)
		gang.run = max(gang.run, run.run)
		gang.gpus += run.gpus
		gang.running = gang.running || run.running
	}
	if len(members) > 1 && !gang.running {
		c.gangs++
	}
	c.job(gang, len(members))
}

// job hands on a run that so many rows make up.
func (c *sacctReader) job(run sacctRun, rows int) {
	switch {
	case run.running:
		c.Excluded.Count(reasonRunning, rows)
		return
	case run.gpus > maxWorkers:
		c.Excluded.Count(reasonTooLarge, rows)
		return
	}
	c.merged += rows - 1
	id := run.key.id
	if _, isNew := c.first(id, run.line); !isNew { // ids restart when a cluster is set up anew
		id += "#" + strconv.Itoa(run.line)
	}
	c.keep(cluster.Job{
		ID: id, Name: run.key.name, User: run.key.user, VC: c.o.VC,
		Workers: run.gpus, Share: unit.WholeGPU, Submit: run.submitted, Duration: run.run,
	})
}

// note says what was assumed.
func (c *sacctReader) note() {
	if c.Rows > 0 && c.gpus == 0 {
		c.Notes = append(c.Notes, "no row has a GPU: does this cluster account for them (AccountingStorageTRES=gres/gpu in slurm.conf)?")
	}
	if c.naive {
		c.Notes = append(c.Notes, "times without an offset are taken as they stand: around a change to or from summer time, "+
			"submissions may be an hour off; run times are not")
	}
	if len(c.typed) > 1 {
		c.Notes = append(c.Notes, "GPU types ("+strings.Join(c.typed, ", ")+") are not held: any GPU of the replayed cluster serves")
	}
	for _, n := range []struct {
		rows int
		text string
	}{
		{c.gangs, "heterogeneous jobs taken as one gang each, of all components with GPUs"},
		{c.joined, "job names that hold the separator put together again"},
		{c.cut, "lists of array tasks that sacct cut off (\"...\"), of which the tasks listed are counted"},
	} {
		if n.rows > 0 {
			c.Notes = append(c.Notes, fmt.Sprintf("%s: %d", n.text, n.rows))
		}
	}
	if !c.table.Has("Suspended") {
		c.Notes = append(c.Notes, "no column Suspended: Elapsed is taken to be free of suspension, as Slurm writes it")
	}
}
