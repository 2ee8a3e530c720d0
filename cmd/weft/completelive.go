package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/web/client"
)

// completionTime is how long a shell waits for what a daemon knows.
const completionTime = 500 * time.Millisecond

// daemonCandidates asks the daemon, and lists nothing where none answers in time.
type daemonCandidates struct{ ctx context.Context }

// candidates implements source.
func (d *daemonCandidates) candidates(kind, state string) []candidate {
	switch kind {
	case "classes":
		return []candidate{{"guaranteed", "shares with besteffort jobs only"}, {"burstable", "shares where floors hold"}, {"besteffort", "takes what others leave"}}
	case "tables":
		return []candidate{{"nodes", "of a cluster"}, {"gpus", "of a cluster"}, {"pods", "of a cluster that ask for GPUs"}}
	case "profiles":
		return profileNames()
	}
	ctx, cancel := context.WithTimeout(d.ctx, completionTime)
	defer cancel()
	daemon, err := client.Find(ctx, state)
	if err != nil {
		return nil
	}
	defer daemon.Close()
	if kind == "gpus" {
		gpus, _ := daemon.GPUs(ctx) // none is an answer, too
		var list []candidate
		for i := range gpus {
			list = append(list, candidate{fmt.Sprintf("gpu%d", gpus[i].Index), gpus[i].Health})
		}
		return list
	}
	jobs, _ := daemon.Jobs(ctx, kind == "jobs" || kind == "users", "") // none is an answer, too
	return jobCandidates(jobs, kind)
}

// mostListed bounds what a shell shows.
const mostListed = 200

// jobCandidates are IDs, the latest first, or users.
func jobCandidates(jobs []box.Job, kind string) []candidate {
	var list []candidate
	if kind == "users" {
		for i := range jobs {
			list = append(list, candidate{word: jobs[i].User})
		}
		slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(a.word, b.word) })
		return slices.Compact(list)
	}
	for _, j := range slices.Backward(jobs) {
		if len(list) == mostListed {
			break
		}
		list = append(list, candidate{j.ID.String(), fmt.Sprintf("%s (%s) %s", j.Name, j.User, j.State)})
	}
	return list
}

// profileNames are the configurations of the catalogue.
func profileNames() []candidate {
	var list []candidate
	for _, e := range catalogue.All() {
		name := e.Model
		if e.Batch != "" {
			name += ":" + e.Batch
		}
		list = append(list, candidate{word: name})
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(a.word, b.word) })
	return slices.Compact(list)
}
