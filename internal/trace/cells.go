package trace

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"weft.dev/weft/internal/unit"
)

// Float is the cell as a finite number in [least, most], or fallback when it is empty or there is no such column.
func (t *Table) Float(column string, least, most, fallback float64) float64 {
	text := t.Text(column)
	if text == "" {
		return fallback
	}
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange), math.IsNaN(v):
		t.Fault(column, "not_a_number", column+" "+clean(text)+" is not a number", "", "write a plain number")
	case v < least || v > most:
		t.outOfRange(column, text, v < 0 && least >= 0, v < least, formatNumber(least), formatNumber(most))
	default:
		return v
	}
	return fallback
}

// Int is the cell as a whole number in [least, most], or fallback when it is empty or there is no such column.
func (t *Table) Int(column string, least, most, fallback int) int {
	text := t.Text(column)
	if text == "" {
		return fallback
	}
	v, err := strconv.Atoi(text)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		t.Fault(column, "not_a_number", column+" "+clean(text)+" is not a whole number", "", "write a whole number")
	case err != nil || v < least || v > most:
		t.outOfRange(column, text, v < 0 && least >= 0, v < least, strconv.Itoa(least), strconv.Itoa(most))
	default:
		return v
	}
	return fallback
}

// amount is the cell as a number in [0, most], where limit says most in words. It is false when the cell is empty,
// missing or at fault.
func (t *Table) amount(column string, most float64, limit, fix string) (float64, bool) {
	v := t.Float(column, math.Inf(-1), math.Inf(1), math.NaN())
	switch {
	case math.IsNaN(v):
		return 0, false
	case v < 0:
		t.Fault(column, "out_of_range", column+" "+clean(t.Text(column))+" is negative", "", fix)
	case v > most:
		t.Fault(column, "out_of_range", column+" "+clean(t.Text(column))+": above "+limit, "", fix)
	default:
		return v, true
	}
	return 0, false
}

// seconds is the cell as a number of seconds of at most 100 years.
func (t *Table) seconds(column string) (float64, bool) {
	return t.amount(column, maxSeconds, "100 years", "write seconds of at least 0")
}

// span is the cell as a run time; 0 when it is empty or at fault.
func (t *Table) span(column string) time.Duration {
	s, _ := t.seconds(column)
	return unit.Duration(s)
}

// instant is the cell as a time since the zero of the trace; 0 when it is empty or at fault.
func (t *Table) instant(column string) unit.Time {
	s, _ := t.seconds(column)
	return unit.Seconds(s)
}

func (t *Table) outOfRange(column, text string, negative, below bool, least, most string) {
	message := column + " " + clean(text)
	switch {
	case negative:
		message += " is negative"
	case below:
		message += ": min " + least
	default:
		message += ": max " + most
	}
	t.Fault(column, "out_of_range", message, "", fmt.Sprintf("write %s to %s", least, most))
}

func formatNumber(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
