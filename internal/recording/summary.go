package recording

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/trace"
	"weft.dev/weft/internal/unit"
)

// SchemaVersion is the version of the profile file that this package writes, and the only one it reads.
const SchemaVersion = 1

// Summary is a profile as a file holds it, in JSON or YAML. Unknown figures are null.
type Summary struct {
	Schema         int              `json:"schema"`
	Name           string           `json:"name"`
	Source         string           `json:"source,omitempty"`
	Device         string           `json:"device,omitempty"`
	PersistentMiB  float64          `json:"persistent_mib"`
	PeakMiB        float64          `json:"peak_mib"`
	TroughMiB      float64          `json:"trough_mib"`
	MeanMiB        float64          `json:"mean_mib"`
	PeriodMS       *float64         `json:"period_ms"`
	Iterations     int              `json:"iterations"`
	Levels         []SummaryLevel   `json:"levels"`
	GPUUtil        *float64         `json:"gpu_util"` // percent of time that the GPU was busy
	ReservedMiB    *float64         `json:"reserved_mib"`
	Verdict        string           `json:"verdict"`
	VerdictCode    VerdictCode      `json:"verdict_code"`
	ValleyMiB      float64          `json:"valley_mib"`
	ValleyFraction *float64         `json:"valley_fraction"`
	Outside        bool             `json:"outside"`
	MissingSamples int              `json:"missing_samples"`
	SkippedLines   int              `json:"skipped_lines"`
	Partial        string           `json:"partial,omitempty"`
	Notes          []string         `json:"notes,omitempty"`
	PerIteration   []SummaryFigures `json:"per_iteration,omitempty"`
}

// SummaryLevel is one level of the ephemeral part: for Fraction of the time the job holds at most MiB above
// persistent_mib, and more than the level before.
type SummaryLevel struct {
	MiB      float64 `json:"mib"`
	Fraction float64 `json:"fraction"`
}

// SummaryFigures are those of one iteration.
type SummaryFigures struct {
	StartMS    float64 `json:"start_ms"`
	DurationMS float64 `json:"duration_ms"`
	MinMiB     float64 `json:"min_mib"`
	MaxMiB     float64 `json:"max_mib"`
	MeanMiB    float64 `json:"mean_mib"`
	NearPeak   float64 `json:"ge_90pct_of_peak_fraction"`
	OverHalf   float64 `json:"ge_50pct_of_peak_fraction"`
}

// Summary is the analysis under a name.
func (a *Analysis) Summary(name string) Summary {
	r := &a.Recording
	s := Summary{
		Schema: SchemaVersion, Name: name, Source: r.Source, Device: r.Device,
		PersistentMiB: a.Profile.Persistent.MiB(), PeakMiB: a.Profile.Peak().MiB(), TroughMiB: a.Trough.MiB(),
		MeanMiB: a.Mean / float64(unit.MiB), Iterations: len(a.Iterations), Levels: summaryLevels(a.Profile),
		Verdict: a.Verdict.Text, VerdictCode: a.Verdict.Code, ValleyMiB: a.Verdict.Valley.MiB(), Outside: r.Outside,
		MissingSamples: r.Missing, SkippedLines: r.SkippedLines, Partial: r.Partial, Notes: a.Notes,
	}
	if a.Period > 0 {
		s.PeriodMS = number(milliseconds(a.Period))
	}
	if r.Utilisation != nil {
		s.GPUUtil = number(*r.Utilisation * 100)
	}
	if !r.Reserved.Empty() {
		_, most := r.Reserved.Range(r.Reserved.Start(), r.Reserved.End)
		s.ReservedMiB = number(most.MiB())
	}
	if r.Clock != Ordered {
		s.ValleyFraction = number(a.Verdict.Share)
	}
	if r.Clock == Real {
		s.PerIteration = a.perIteration()
	}
	return s
}

func (a *Analysis) perIteration() []SummaryFigures {
	figures := make([]SummaryFigures, len(a.Iterations))
	origin := a.Recording.Allocated.Start()
	for i, f := range a.Iterations {
		figures[i] = SummaryFigures{milliseconds(f.Start.Sub(origin)), milliseconds(f.Duration()), f.Min.MiB(), f.Max.MiB(),
			f.Mean / float64(unit.MiB), f.NearPeak, f.OverHalf}
	}
	return figures
}

func summaryLevels(p profile.Profile) []SummaryLevel {
	if len(p.Ephemeral) == 0 {
		return []SummaryLevel{{0, 1}}
	}
	levels := make([]SummaryLevel, len(p.Ephemeral))
	for i, l := range p.Ephemeral {
		levels[i] = SummaryLevel{l.Bytes.MiB(), l.Fraction}
	}
	return levels
}

func number(v float64) *float64 { return &v }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Bundle is a file of several profiles.
type Bundle struct {
	Schema   int       `json:"schema"`
	Profiles []Summary `json:"profiles"`
}

// Write writes one profile as itself and several as a Bundle: as YAML when the file's name ends in .yaml or .yml, else as
// JSON.
func Write(w io.Writer, file string, summaries []Summary) error {
	var v any = Bundle{SchemaVersion, summaries}
	if len(summaries) == 1 {
		v = summaries[0]
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if strings.HasSuffix(file, ".yaml") || strings.HasSuffix(file, ".yml") {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	} else {
		text = append(text, '\n')
	}
	_, err = w.Write(text)
	return err
}

// maxProfile bounds a profile file. One of 256 levels and thousands of iterations is a hundredth of it.
const maxProfile = 64 << 20

// ReadProfile reads a profile file that Write wrote, with all it says about the profile. The file must hold one profile;
// levels must ascend, and their fractions sum to 1. Faults are trace.Errors.
func ReadProfile(file string, r io.Reader) (profile.Profile, Summary, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxProfile+1))
	if err != nil {
		return profile.Profile{}, Summary{}, fmt.Errorf("read %s: %w", file, err)
	}
	if len(text) > maxProfile {
		return profile.Profile{}, Summary{}, Bad(file, "too_large", "a profile file of more than 64 MiB", -1, "", "give what weft profile --out wrote")
	}
	var read struct {
		Summary
		Profiles []Summary `json:"profiles"`
	}
	if err := yaml.Unmarshal(text, &read); err != nil {
		return profile.Profile{}, Summary{}, Bad(file, "not_a_profile", "this is no profile file: "+firstLine(err.Error()), -1, "",
			"make one from a recording: weft profile RECORDING --out "+file)
	}
	s := read.Summary
	if len(read.Profiles) == 1 {
		s = read.Profiles[0]
	}
	if len(read.Profiles) > 1 {
		names := make([]string, len(read.Profiles))
		for i, p := range read.Profiles {
			names[i] = p.Name
		}
		return profile.Profile{}, Summary{}, Bad(file, "several_profiles", fmt.Sprintf("the file holds %d profiles: %s", len(names), join(names)),
			-1, "a job has one", "write one of them: weft profile --gpu N --out FILE")
	}
	p, err := s.profile(file)
	return p, s, err
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// profile checks a summary and makes its profile.
func (s *Summary) profile(file string) (profile.Profile, error) {
	var faults trace.Errors
	fault := func(field, format string, args ...any) {
		faults = append(faults, &trace.Error{Code: "bad_profile", File: file, Column: field, Message: fmt.Sprintf(format, args...),
			Fix: "make the file anew from the recording with weft profile"})
	}
	if s.Schema != SchemaVersion {
		fault("schema", "profile schema %d; %d is known", s.Schema, SchemaVersion)
		return profile.Profile{}, faults
	}
	if !amount(s.PersistentMiB) || !amount(s.PeakMiB) || s.PeakMiB < s.PersistentMiB {
		fault("persistent_mib", "persistent %v MiB and peak %v MiB are no range of memory", s.PersistentMiB, s.PeakMiB)
	}
	p := profile.Profile{Persistent: unit.FromMiB(s.PersistentMiB)}
	before, sum := -1.0, 0.0
	for _, l := range s.Levels {
		if !amount(l.MiB) || l.MiB <= before || !(l.Fraction > 0 && l.Fraction <= 1) {
			fault("levels", "level of %v MiB for %v of the time: levels ascend and fractions lie in (0, 1]", l.MiB, l.Fraction)
			return profile.Profile{}, faults
		}
		before, sum = l.MiB, sum+l.Fraction
		p.Ephemeral = append(p.Ephemeral, profile.Level{Bytes: unit.FromMiB(l.MiB), Fraction: l.Fraction})
	}
	if len(s.Levels) == 0 || len(s.Levels) > MaxLevels || math.Abs(sum-1) > 1e-6 {
		fault("levels", "%d levels whose fractions sum to %v; 1 to %d that sum to 1 are wanted", len(s.Levels), sum, MaxLevels)
	} else if math.Abs(s.PersistentMiB+before-s.PeakMiB) > 1 {
		fault("peak_mib", "peak %v MiB is not persistent plus the highest level, %v MiB", s.PeakMiB, s.PersistentMiB+before)
	}
	if len(faults) > 0 {
		return profile.Profile{}, faults
	}
	if len(p.Ephemeral) == 1 && p.Ephemeral[0].Bytes == 0 {
		p.Ephemeral = nil
	}
	return p, nil
}

// maxMiB is 1 TiB, beyond any GPU.
const maxMiB = 1 << 20

func amount(mib float64) bool { return mib >= 0 && mib <= maxMiB }
