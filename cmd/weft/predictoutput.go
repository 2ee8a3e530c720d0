package main

import (
	"fmt"
	"math"

	"weft.dev/weft/internal/interference"
	"weft.dev/weft/internal/interference/model"
	"weft.dev/weft/internal/report"
)

// predictAnswer is the prediction of one pair.
type predictAnswer struct {
	coverage float64
	gpu      string
	jobs     [2]predictedJob
	notes    []string
}

// predictedJob is one side: what it keeps and why.
type predictedJob struct {
	model.Prediction
	config  interference.Config
	drivers []model.Driver
	other   string // what the other side is called
}

// mostDrivers is how many features an answer names in JSON; the table names the first.
const mostDrivers = 5

func predicted(p *model.Predictor, other string, q model.Query) predictedJob {
	drivers := p.Drivers(q)
	return predictedJob{p.Predict(q), q.Self, drivers[:min(len(drivers), mostDrivers)], other}
}

// because is the feature that moved the rate most.
func (j *predictedJob) because() string {
	if j.Basis == model.Prior && len(j.drivers) == 0 {
		return "nothing known: prior"
	}
	for _, d := range j.drivers {
		if d.Owner != model.OwnGPU { // that the GPU model counts says nothing about the pair
			return j.name(d)
		}
	}
	return report.None
}

// name is a feature in words.
func (j *predictedJob) name(d model.Driver) string {
	switch d.Owner {
	case model.OwnSelf:
		return "own " + d.Label
	case model.OwnPartner:
		return j.other + "'s " + d.Label
	}
	return d.Label
}

// write writes the table of one pair.
func (a *predictAnswer) write(s *session) error {
	share := int(math.Round((2*a.coverage - 1) * 100))
	t := &report.Table{Columns: []report.Column{
		{Title: "JOB", Shrink: true}, {Title: "RATE", Number: true}, {Title: fmt.Sprintf("%d %% RANGE", share), Number: true},
		{Title: "SAFE FLOOR", Number: true}, {Title: "BECAUSE"}, {Title: "BASIS", Wide: true},
	}}
	for i := range a.jobs {
		j := &a.jobs[i]
		t.Rows = append(t.Rows, report.Cells(report.Clean(j.config.String()), report.Percent(j.Mean),
			fmt.Sprintf("%.0f to %s", math.Floor(j.Low*100), report.Percent(j.High)), report.Percent(math.Floor(j.Low*100)/100),
			j.because(), string(j.Basis)))
	}
	if err := t.Write(s.stdout, s.screen); err != nil {
		return err
	}
	return writeNotes(s, a.notes)
}

// predictedDriver is a feature of --json.
type predictedDriver struct {
	Feature string  `json:"feature"`
	By      float64 `json:"by"`
}

// predictedDocument is one side of --json.
type predictedDocument struct {
	Job       string            `json:"job"`
	Rate      float64           `json:"rate"`
	Low       float64           `json:"low"`
	High      float64           `json:"high"`
	SafeFloor float64           `json:"safe_floor"`
	Basis     model.Basis       `json:"basis"`
	Because   []predictedDriver `json:"because"`
}

// document is the form of --json.
func (a *predictAnswer) document() any {
	var jobs []predictedDocument
	for i := range a.jobs {
		j := &a.jobs[i]
		d := predictedDocument{j.config.String(), j.Mean, j.Low, j.High, j.Low, j.Basis, []predictedDriver{}}
		for _, x := range j.drivers {
			d.Because = append(d.Because, predictedDriver{j.name(x), x.By})
		}
		jobs = append(jobs, d)
	}
	return map[string]any{"schema": 1, "gpu_model": a.gpu, "nominal_coverage": a.coverage, "jobs": jobs,
		"notes": append([]string{}, a.notes...)}
}
