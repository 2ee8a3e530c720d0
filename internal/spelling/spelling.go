// Package spelling finds the name that somebody probably meant.
package spelling

import (
	"cmp"
	"slices"
	"strings"
)

// Nearest is the name that a word is most likely a misspelling of, "" where none is near. A letter left out, added,
// replaced, or swapped with the one before it counts as one fault, upper and lower case as none; up to one fault for each
// three letters, and one in short words, are near. Of equally near names the first in the alphabet is taken. It takes time
// in the product of the lengths.
func Nearest(word string, names []string) string {
	near := Near(word, names, 1)
	if len(near) == 0 {
		return ""
	}
	return near[0]
}

// Near is the up to most names that a word is likely a misspelling of, the likeliest first.
func Near(word string, names []string, most int) []string {
	type candidate struct {
		name   string
		faults int
	}
	typed := []rune(strings.ToLower(word))
	allowed := max(1, len(typed)/3)
	var near []candidate
	for _, name := range names {
		letters := []rune(strings.ToLower(name))
		if max(len(letters)-len(typed), len(typed)-len(letters)) > allowed || len(letters) <= 1 {
			continue
		}
		if f := faults(typed, letters); f <= allowed && f < len(letters) {
			near = append(near, candidate{name, f})
		}
	}
	slices.SortFunc(near, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.faults, b.faults), cmp.Compare(a.name, b.name)) })
	near = slices.Compact(near)
	list := make([]string, 0, min(most, len(near)))
	for _, c := range near[:min(most, len(near))] {
		list = append(list, c.name)
	}
	return list
}

// faults is the optimal string alignment distance: that of Levenshtein, with swaps of neighbours as one fault, none of
// which is edited again.
func faults(a, b []rune) int {
	before, last, now := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			now[j] = min(replaced, last[j]+1, now[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}
