package report

import (
	"strings"
	"unicode"
)

// wide are the blocks whose characters take two terminal columns: East Asian Wide and Fullwidth, and emoji (Unicode
// Standard Annex 11), rounded to whole blocks.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1}, {Lo: 0x2e80, Hi: 0x303e, Stride: 1}, {Lo: 0x3041, Hi: 0x4dbf, Stride: 1},
		{Lo: 0x4e00, Hi: 0xa4cf, Stride: 1}, {Lo: 0xac00, Hi: 0xd7a3, Stride: 1}, {Lo: 0xf900, Hi: 0xfaff, Stride: 1},
		{Lo: 0xfe30, Hi: 0xfe6f, Stride: 1}, {Lo: 0xff00, Hi: 0xff60, Stride: 1}, {Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x1f300, Hi: 0x1faff, Stride: 1}, {Lo: 0x20000, Hi: 0x3fffd, Stride: 1}},
}

func runeColumns(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0 // written onto the character before it
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// Columns is how many terminal columns a clean text takes.
func Columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

// Clean replaces everything in a text from outside that is not a visible character by "?": control characters, with
// which a job name could drive the terminal, line ends, invisible format characters such as the bidirectional
// overrides, and bytes that are not UTF-8.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || r != ' ' && !unicode.IsGraphic(r) || unicode.In(r, unicode.Zl, unicode.Zp) {
			return '?'
		}
		return r
	}, s)
}

// Shorten cuts a text to at most n >= 1 columns; a cut text ends with "~".
func Shorten(s string, n int) string {
	if Columns(s) <= n {
		return s
	}
	used := 0
	for at, r := range s {
		used += runeColumns(r)
		if used > n-1 {
			return s[:at] + "~"
		}
	}
	return s
}
