// Package report writes results for people: numbers, text tables, faults of an input, and the self-contained HTML
// report of a study. It is told whether to colour and how wide to write; it never looks at the terminal itself.
package report

// Screen is where text is written. The zero value is an uncoloured 80-column screen.
type Screen struct {
	Width int  // columns; at most 0 means 80. Text that goes to no terminal is 120 wide
	Color bool // ANSI 16 colours; off under NO_COLOR, TERM=dumb, --color never, and away from a terminal
}

// Widths of a screen: what every terminal has, and where the columns marked Wide appear.
const (
	narrowWidth = 80
	WideWidth   = 120
)

func (s Screen) width() int {
	if s.Width <= 0 {
		return narrowWidth
	}
	return s.Width
}

// ANSI 16 attributes, the only ones weft uses: they follow the user's own palette, so they stay legible on it.
const (
	bold   = "1"
	red    = "31"
	yellow = "33"
)

// Marked is a text with its mark, as a cell of a Table has it: coloured where the screen is, and with its sign.
func (s Screen) Marked(text string, m Mark) string { return s.paint(m.attribute(), text+m.sign()) }

// Coloured is a text in the colour of a mark, for one whose words say the same.
func (s Screen) Coloured(text string, m Mark) string { return s.paint(m.attribute(), text) }

// Columns is how many columns the screen has.
func (s Screen) Columns() int { return s.width() }

func (s Screen) paint(attribute, text string) string {
	if !s.Color || attribute == "" || text == "" {
		return text
	}
	return "\x1b[" + attribute + "m" + text + "\x1b[0m"
}
