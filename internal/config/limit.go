package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// limit is one key of a user.
type limit struct {
	name string
	at   func(*Limits) *int
}

// weightKey is the key of a user that is no limit.
const weightKey = "weight"

var limits = []limit{
	{"max_gpus", func(l *Limits) *int { return &l.MaxGPUs }},
	{"max_running", func(l *Limits) *int { return &l.MaxRunning }},
	{"max_waiting", func(l *Limits) *int { return &l.MaxWaiting }},
}

func limitNames() []string {
	names := []string{weightKey}
	for _, l := range limits {
		names = append(names, l.name)
	}
	return names
}

// mostWeight and mostLimit bound what a person can mean.
const (
	mostWeight = 1000
	mostLimit  = math.MaxInt32
)

// set sets one key of a user.
func (l *Limits) set(name, value string) *fault {
	if name == weightKey {
		w, err := strconv.ParseFloat(value, 64)
		if err != nil || !(w > 0) || w > mostWeight {
			return &fault{fmt.Sprintf("weight %s is outside (0, %d]", value, mostWeight), "a weight of 2 has twice the share of 1", "1"}
		}
		l.Weight = w
		return nil
	}
	n, err := strconv.Atoi(value)
	i := slices.IndexFunc(limits, func(x limit) bool { return x.name == name })
	if err != nil || n < 1 || n > mostLimit {
		return &fault{fmt.Sprintf("%s %s is not a whole number of at least 1", name, value), "", "leave the key out for no limit"}
	}
	*limits[i].at(l) = n
	return nil
}

// shown is the keys of a user that are set, with their values.
func (l *Limits) shown() (names, values []string) {
	if l.Weight > 0 {
		names, values = append(names, weightKey), append(values, strconv.FormatFloat(l.Weight, 'g', -1, 64))
	}
	for _, x := range limits {
		if n := *x.at(l); n > 0 {
			names, values = append(names, x.name), append(values, strconv.Itoa(n))
		}
	}
	return names, values
}

// example is how a key is written.
func example(path string) string {
	switch path {
	case "":
		return "floor: 0.9"
	case administratorsKey:
		return "administrators: [ana, ben]"
	case usersKey:
		return "users: {default: {max_running: 8}, ana: {weight: 2}}"
	}
	return path + ": a value"
}
