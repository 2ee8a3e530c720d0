// Package config is what the operator and the user of a machine decide once instead of on each command line: defaults of
// jobs, where the daemon serves, and what each user may have. It reads the machine's file, the user's, WEFT_* of the
// environment, and flags, in this order, later ones winning; it knows where each value came from, and refuses what it does
// not know.
package config

import (
	"cmp"
	"slices"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/unit"
)

// Config is what is in force.
type Config struct {
	Listen   string     // address of the page and of HTTP, host:port; NoListen for none
	State    string     // the daemon's folder, absolute; "" for the default one
	Floor    float64    // of jobs that name none, in (0, 1]
	Class    box.Class  // of jobs that name none
	Priority int        // of jobs that name none, 0 to 100
	LogLimit unit.Bytes // of the log of one job; what is older goes

	// Of the machine: from its file only.
	Administrators []string          // names of users who may do everything
	Users          map[string]Limits // by name; "default" is everybody else
}

// Limits is what one user may have. A limit of 0 is none.
type Limits struct {
	Weight     float64 // share of the machine relative to others', in (0, 1000]; 1 where nothing is said
	MaxGPUs    int     // GPUs that running jobs are on, counted once for each job
	MaxRunning int     // jobs that run
	MaxWaiting int     // jobs that wait
}

// everybody is the entry of users who have none.
const everybody = "default"

// NoListen is the address of a daemon that serves no page.
const NoListen = "none"

// Standards of a machine that nobody configured.
const (
	standardListen   = "127.0.0.1:7070"
	standardFloor    = 0.9
	standardPriority = 10
	standardLogLimit = unit.GiB
	standardWeight   = 1
)

// Standard is the configuration of a machine without a file.
func standard() Config {
	return Config{Listen: standardListen, Floor: standardFloor, Class: box.Burstable, Priority: standardPriority, LogLimit: standardLogLimit, Users: map[string]Limits{}}
}

// Of is what a user may have: each limit is the user's own, else that of everybody.
func (c *Config) Of(user string) Limits {
	own, all := c.Users[user], c.Users[everybody]
	return Limits{
		Weight:     cmp.Or(own.Weight, all.Weight, standardWeight),
		MaxGPUs:    cmp.Or(own.MaxGPUs, all.MaxGPUs),
		MaxRunning: cmp.Or(own.MaxRunning, all.MaxRunning),
		MaxWaiting: cmp.Or(own.MaxWaiting, all.MaxWaiting),
	}
}

// Administers says whether a user is named as an administrator. Root and the daemon's user are administrators without that.
func (c *Config) Administers(user string) bool { return slices.Contains(c.Administrators, user) }
