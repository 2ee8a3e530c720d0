package recording

import (
	"fmt"
	"math"

	"weft.dev/weft/internal/unit"
)

// Verdict says whether the memory of a job can be shared over time.
type Verdict struct {
	Code   VerdictCode
	Valley unit.Bytes // this much below the peak is free ...
	Share  float64    // ... for this share of time; 0 when unknown
	Text   string
}

// VerdictCode is stable for programs.
type VerdictCode string

// The verdicts.
const (
	Flat         VerdictCode = "flat"           // there is no valley
	FlatOutside  VerdictCode = "flat_outside"   // none is seen from outside the process
	KeepsCache   VerdictCode = "keeps_cache"    // a valley that the allocator does not give back
	MayKeepCache VerdictCode = "may_keep_cache" // a valley; what the allocator keeps was not recorded
	GivesBack    VerdictCode = "gives_back"     // a valley that others can use as it is
)

// What counts as flat: a valley of less than this share of the peak, and an allocator's hold that moves less than this.
const (
	flatValley = 0.05
	flatHold   = 0.05
)

// judge is the verdict on a distribution of what was held over some spans.
func (a *Analysis) judge(held distribution, spans []Iteration) Verdict {
	r := &a.Recording
	v := held.valley()
	swing := float64(held.most() - held.least())
	switch {
	case swing < flatValley*float64(held.most()) && r.Outside:
		return Verdict{Code: FlatOutside, Text: "flat from outside; an allocator's cache hides what is used: record inside the process"}
	case swing < flatValley*float64(held.most()):
		return Verdict{Code: Flat, Text: "flat: memory stays within 5 % of its peak, there is no valley to share"}
	}
	verdict := Verdict{Valley: v.Depth, Share: v.Share}
	of := "of each iteration"
	if len(a.Iterations) == 0 {
		of = "of the recording"
	}
	verdict.Text = fmt.Sprintf("valley of %s for %s %s", v.Depth, percent(v.Share), of)
	if r.Clock == Ordered {
		verdict.Valley, verdict.Share = held.most()-held.least(), 0
		verdict.Text = fmt.Sprintf("valley of %s for an unknown share of time", verdict.Valley)
	}
	switch {
	case r.Outside:
		verdict.Code = GivesBack
		verdict.Text += ", seen from outside: shareable as it is"
	case r.Reserved.Empty():
		verdict.Code = MayKeepCache
		verdict.Text += "; shareable only with handover"
		a.Notes = append(a.Notes, "what the allocator keeps reserved was not recorded: it is taken to keep its cache")
	case a.hold(spans):
		verdict.Code = KeepsCache
		verdict.Text += "; allocator keeps its cache: shareable only with handover"
	default:
		verdict.Code = GivesBack
		verdict.Text += "; allocator gives memory back: shareable as it is"
	}
	return verdict
}

// hold says whether the allocator's hold on the GPU stays flat over the spans.
func (a *Analysis) hold(spans []Iteration) bool {
	r := gather(a.Recording.Reserved, spans)
	return float64(r.most()-r.least()) < flatHold*float64(r.most())
}

// percent is a share in whole percent, rounded down: a valley is not promised for longer than it lasts.
func percent(share float64) string { return fmt.Sprintf("%.0f %%", math.Floor(share*100)) }
