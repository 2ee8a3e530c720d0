package page

import (
	"fmt"
	"html"
	"html/template"
	"strconv"
	"strings"
)

// canvas gathers the elements of one SVG. It has no view box: places are percentages of the drawn area, and sizes of
// text, strokes and bars are pixels, so that a plot fills any width and its words stay legible. Labels stand outside of
// the area, in the margins that the style sheet leaves.
type canvas struct{ b strings.Builder }

func (c *canvas) add(format string, values ...any) { fmt.Fprintf(&c.b, format, values...) }

// pct writes a share of 1 as a percentage with the precision of a tenth of a pixel.
func pct(v float64) string { return short(v*100, 2) + "%" }

// short writes a number with at most the given decimals and no needless zeros.
func short(v float64, decimals int) string {
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" {
		return "0"
	}
	return text
}

// xTicks draws the lines and labels of a horizontal axis below the area. Every second label is left out where the plot
// is narrow (class w).
func (c *canvas) xTicks(a axis) {
	for i, t := range a.ticks {
		x, class := a.at(t.value), "t"
		if i%2 == 1 && len(a.ticks) > wantedTicks {
			class = "t w"
		}
		anchor := ""
		if x > 0.97 {
			anchor = ` style="text-anchor:end"`
		}
		c.add(`<line class="g" x1="%[1]s" x2="%[1]s" y1="0" y2="100%%"/><text class="%[2]s x" x="%[1]s" y="100%%" dy="17"%[3]s>%[4]s</text>`,
			pct(x), class, anchor, html.EscapeString(t.label))
	}
	c.add(`<text class="a e" x="100%%" y="100%%" dy="35">%s</text>`, html.EscapeString(a.title))
}

// yTicks draws the lines and labels of a vertical axis left of the area, and its title above it.
func (c *canvas) yTicks(a axis) {
	for _, t := range a.ticks {
		y := pct(1 - a.at(t.value))
		c.add(`<line class="g" x1="0" x2="100%%" y1="%[1]s" y2="%[1]s"/><text class="t e" x="-8" y="%[1]s" dy="4">%s</text>`,
			y, html.EscapeString(t.label))
	}
	c.add(`<text class="a" x="-44" y="-12">%s</text>`, html.EscapeString(a.title))
}

// curves draws step curves in an inner SVG that stretches with the area.
func (c *canvas) curves(curves [][]point) {
	c.add(`<svg class="s" viewBox="0 0 1000 1000" preserveAspectRatio="none" width="100%%" height="100%%">`)
	for i, points := range curves {
		if len(points) > 0 {
			c.add(`<path class="line %s" data-run="%d" d="%s"/>`, style(i), i, path(points))
		}
	}
	c.add(`</svg>`)
}

// path writes a step curve in thousandths of the area: to each point first sideways, then up or down.
func path(points []point) string {
	var b strings.Builder
	x, y := short(points[0].x*1000, 1), short(1000-points[0].y*1000, 2)
	b.WriteString("M" + x + " " + y)
	for _, p := range points[1:] {
		if next := short(p.x*1000, 1); next != x {
			x = next
			b.WriteString("H" + x)
		}
		if next := short(1000-p.y*1000, 2); next != y {
			y = next
			b.WriteString("V" + y)
		}
	}
	return b.String()
}

// Colours and dash patterns of the style sheet.
const (
	colours = 5
	dashes  = 5
)

// style is the classes of the i-th run: a colour and a dash pattern, which no two of the first 25 runs share.
func style(i int) string { return fmt.Sprintf("c%d d%d", i%colours, (i+i/colours)%dashes) }

// svg closes the drawing. The label names it, the description says in words what it shows, height is in pixels, and
// attributes are for the page's script.
func (c *canvas) svg(label, description string, height int, attributes string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg class="area" role="img" aria-label="%s" height="%d"%s><desc>%s</desc>%s</svg>`,
		html.EscapeString(label), height, attributes, html.EscapeString(description), c.b.String()))
}
