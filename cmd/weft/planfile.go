package main

import (
	"encoding/json"
	"os"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/placement"
)

// planFile is the placement that --out writes. It is opened before the work starts.
type planFile struct {
	f *os.File
}

func newPlanFile(path string) (*planFile, error) {
	f, err := create(path)
	return &planFile{f}, err
}

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

func (p *planFile) write(s *planStudy) error {
	doc := planDocument{Schema: 1, Method: s.bestName, GPUs: []planGPU{}, Partial: s.Partial}
	if s.best != nil {
		for g, residents := range s.best.GPUs {
			doc.GPUs = append(doc.GPUs, planGPU{g, residentsOf(s.problem, residents)})
		}
	}
	e := json.NewEncoder(p.f)
	e.SetIndent("", " ")
	if err := e.Encode(doc); err != nil {
		_ = p.f.Close() // the write error says more
		return err
	}
	return p.f.Close()
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
