package main

import (
	"encoding/json"
	"io"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
)

// planDocument is the form of the file.
type planDocument struct {
	Schema  int       `json:"schema"`
	Method  string    `json:"method"`
	GPUs    []planGPU `json:"gpus"`
	Partial bool      `json:"partial,omitempty"`
}

type planGPU struct {
	GPU       int            `json:"gpu"`
	Residents []planResident `json:"residents"`
}

// planResident is one worker of a job on a GPU, with the share of its standalone speed that it keeps.
type planResident struct {
	Job    string  `json:"job"`
	Worker int     `json:"worker"`
	Rate   float64 `json:"rate"`
	Floor  float64 `json:"floor"`
}

// writePlacement writes the best method's placement.
func (s *planStudy) writePlacement(w io.Writer) error {
	doc := planDocument{Schema: 1, GPUs: []planGPU{}, Partial: s.Partial}
	if s.best != nil {
		doc.Method = s.best.method.Name
		for g, residents := range s.best.packing.GPUs {
			doc.GPUs = append(doc.GPUs, planGPU{g, residentsOf(s.best.problem, residents)})
		}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(doc)
}

func residentsOf(p *placement.Problem, residents []cluster.Worker) []planResident {
	out := make([]planResident, len(residents))
	rates := p.Rates(residents)
	for i, w := range residents {
		job := &p.Jobs()[p.Job(w)]
		first, _ := p.WorkersOf(p.Job(w))
		out[i] = planResident{job.ID, int(w - first), rates[i], job.Floor}
	}
	return out
}
