// Package drawing draws what was recorded of a job's memory as a PNG image.
package drawing

import (
	"fmt"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/unit"
)

// Size of the image, and how many instants of a curve are drawn: more than there are pixels.
const (
	width  = 24 * vg.Centimeter
	height = 12 * vg.Centimeter
	drawn  = 2000
)

// Colours that can be told apart in every kind of colour vision, and in print.
var (
	blue   = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	orange = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	green  = color.RGBA{0x00, 0x79, 0x5a, 0xff}
)

// Write draws memory in use, memory reserved and the persistent part over some iterations, as Span chooses them.
func Write(w io.Writer, name string, a *recording.Analysis) error {
	p := plot.New()
	p.Title.Text = name + ": " + a.Verdict.Text
	p.X.Label.Text = "time (ms)"
	if a.Recording.Clock != recording.Real {
		p.X.Label.Text = "events"
	}
	p.Y.Label.Text = "GPU memory (GiB)"
	p.Y.Min = 0
	p.Legend.Top = true
	span := a.Span()
	if err := add(p, "in use", blue, nil, a.Recording.Allocated, span); err != nil {
		return err
	}
	if !a.Recording.Reserved.Empty() {
		if err := add(p, "reserved", orange, []vg.Length{6, 3}, a.Recording.Reserved, span); err != nil {
			return err
		}
	}
	held := recording.Curve{Points: []recording.Point{{At: span.Start, Bytes: a.Profile.Persistent}}, End: span.End}
	if err := add(p, "persistent", green, []vg.Length{2, 2}, held, span); err != nil {
		return err
	}
	p.Y.Max *= 1.15 // room for the legend
	image, err := p.WriterTo(width, height, "png")
	if err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	_, err = image.WriteTo(w)
	return err
}

// add draws one curve as steps.
func add(p *plot.Plot, label string, c color.Color, dashes []vg.Length, curve recording.Curve, span recording.Iteration) error {
	points := make(plotter.XYs, 0, drawn)
	for i, held := range curve.Samples(span, drawn) {
		at := float64(span.Duration()) * float64(i) / drawn
		points = append(points, plotter.XY{X: at / 1e6, Y: float64(held) / float64(unit.GiB)})
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.StepStyle = plotter.PreStep
	line.Color, line.Dashes, line.Width = c, dashes, vg.Points(1.5)
	p.Add(line)
	p.Legend.Add(label, line)
	return nil
}
