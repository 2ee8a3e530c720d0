package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weft.dev/weft/internal/policy"
	"weft.dev/weft/internal/sim/muri"
)

// simCommand replays recorded jobs under one or several policies.
type simCommand struct {
	Trace   string       `arg:"" placeholder:"TRACE" help:"Recorded jobs. - reads the standard input."`
	Read    jobFlags     `embed:""`
	Sharing sharingFlags `embed:""`
	Adjust  adjustFlags  `embed:""`

	Nodes       positive `placeholder:"N" help:"Nodes of the cluster."`
	GPUsPerNode positive `name:"gpus-per-node" placeholder:"G" help:"GPUs of each node. Default: 8."`
	Cluster     string   `placeholder:"FILE" help:"Describes the cluster: node, gpus, and optionally gpu_model, gpu_memory_mib, cpu_milli, memory_mib, vc, count; or openb's, Philly's or Tiresias' node file."`

	Policy    []string `default:"fifo" help:"Who runs next: fifo, sjf, srtf, srsf, tiresias; antman with --format muri."`
	Share     []string `default:"never" help:"Whether GPUs are shared: never; floor (while every floor holds); always (memory permitting); or as other systems do: peak, utilcap, classes, bsbf, unpack."`
	Placement []string `placeholder:"P" help:"Where: consolidated, firstfit, bestfit, dotprod, clustering, packing, fgd, random without sharing (default consolidated); greedy or heuristic (greedy that also moves jobs to close gaps) with it."`
	Own       bool     `help:"Replay muri and pollux traces by weft's own rules, not by those of the simulators they were published with."`

	Fill  float64 `placeholder:"F" help:"With --format openb: fill the cluster until F times its GPUs were asked for, without departures."`
	Seeds seeds   `default:"42" help:"Seeds of random choices: 42, 42..51 or 1,2,3."`

	RestartCost time.Duration `default:"0s" help:"Time a preempted or moved job loses when it starts again."`

	JSON bool   `name:"json" help:"Write JSON for programs."`
	CSV  string `name:"csv" placeholder:"DIR" help:"Write figures and jobs of each run as CSV files."`
	HTML string `name:"html" placeholder:"FILE" help:"Write a report with plots, in one file."`
}

// Help is what weft sim --help adds.
func (simCommand) Help() string {
	return `Examples:
  weft generate > jobs.csv && weft sim jobs.csv --nodes 8 --gpus-per-node 8 --share never,floor
  weft sim log.txt --format sacct --nodes 64 --gpus-per-node 8 --policy fifo,sjf --html report.html
  weft sim jobs.csv --share never,floor,utilcap --placement heuristic --predict default --restart-cost 30s
  weft sim trace3.csv --format muri --policy srtf,srsf,tiresias,antman
  weft sim pods.csv --format openb --cluster nodes.csv --placement fgd,bestfit --fill 1.3 --seeds 42..51`
}

// The ways to share GPUs.
const (
	shareNever  = "never"
	shareFloor  = "floor"
	shareAlways = "always"
	shareOracle = "oracle" // as floor, by the true rates: beside runs on predictions
)

// Placements of our own; consolidated and greedy are the defaults without and with sharing.
const (
	placementConsolidated = "consolidated"
	placementGreedy       = "greedy"
	placementHeuristic    = "heuristic"
)

// variant is one run: who runs next, where, and whether GPUs are shared.
type variant struct {
	policy, placement, share string
}

func (v variant) String() string { return v.policy + " " + v.placement + " " + v.share }

// Run implements the command.
func (c *simCommand) Run(ctx context.Context, s *session) error {
	variants, err := c.check()
	if err != nil {
		return asInput(err, c.JSON)
	}
	out, err := c.openOutputs()
	if err != nil {
		return asInput(err, c.JSON)
	}
	defer out.drop()
	study, err := c.study(ctx, s, variants)
	if err != nil && !(interrupted(err) && study != nil) {
		return asInput(err, c.JSON)
	}
	study.Partial = study.Partial || err != nil
	s.progress.Done()
	if c.JSON {
		s.writeJSON(study)
	} else if err := study.write(s); err != nil {
		return err
	}
	if err := out.write(study, s, c); err != nil {
		return err
	}
	if study.Partial {
		return errPartial
	}
	return nil
}

// study picks the rules that the trace is replayed by.
func (c *simCommand) study(ctx context.Context, s *session, variants []variant) (*simStudy, error) {
	switch {
	case c.Fill > 0:
		return c.fillUp(ctx, s, variants)
	case c.published("muri") && c.allOf(variants, muriPolicies()):
		return c.muri(ctx, s, variants)
	case c.published("pollux") && c.allOf(variants, []string{"tiresias"}):
		return c.pollux(ctx, s, variants)
	}
	return c.own(ctx, s, variants)
}

// published says whether a trace of this format is replayed by the rules it was published with.
func (c *simCommand) published(format string) bool { return c.Read.Format == format && !c.Own }

func (c *simCommand) allOf(variants []variant, policies []string) bool {
	return !slices.ContainsFunc(variants, func(v variant) bool {
		return v.share != shareNever || !slices.Contains(policies, v.policy)
	})
}

func muriPolicies() []string {
	var names []string
	for _, p := range muri.Policies() {
		names = append(names, string(p))
	}
	return names
}

// check verifies the flags and lists the runs.
func (c *simCommand) check() ([]variant, error) {
	faults := []error{c.Read.check(), c.Sharing.check(), c.Adjust.check(), c.checkCluster()}
	shared, unshared := []string{placementGreedy, placementHeuristic}, append([]string{placementConsolidated}, policy.ScoredNames()...)
	for _, list := range []struct {
		flag           string
		values, choice []string
	}{
		{"--policy", c.Policy, append(policy.OrderNames(), string(muri.AntMan))},
		{"--share", c.Share, append([]string{shareNever, shareFloor}, policy.BaselineNames()...)},
		{"--placement", c.Placement, append(slices.Clone(unshared), shared...)},
	} {
		for _, v := range list.values {
			if !slices.Contains(list.choice, v) {
				faults = append(faults, flagError(list.flag, v, fmt.Sprintf("unknown %s %q", strings.TrimLeft(list.flag, "-"), v), "",
					"one of "+strings.Join(list.choice, ", ")))
			}
		}
	}
	if slices.Contains(c.Policy, string(muri.AntMan)) && (!c.published("muri") || !onlyNever(c.Share)) {
		faults = append(faults, flagError("--policy", "antman", "antman needs a muri trace, replayed by its published rules",
			"it decides by the stage times of each job, which only those traces state", "add --format muri, or leave antman out"))
	}
	if c.Adjust.Predict != "" && !slices.Contains(c.Share, shareFloor) {
		faults = append(faults, flagError("--predict", c.Adjust.Predict, "--predict says nothing without --share floor",
			"only floors are kept by predicted rates", "add --share floor, or leave --predict out"))
	}
	variants := c.variants(shared, unshared)
	return variants, errors.Join(append(faults, c.checkPlacements(variants))...)
}

// checkPlacements refuses a placement that goes with none of the ways to share.
func (c *simCommand) checkPlacements(variants []variant) error {
	for _, place := range c.Placement {
		if !slices.ContainsFunc(variants, func(v variant) bool { return v.placement == place }) {
			return flagError("--placement", place, fmt.Sprintf("placement %s goes with no --share that is asked for", place),
				"heuristic goes with floor and always, and like greedy with never alone; greedy with every other way; all others with never",
				"leave it out, or add the --share that it goes with")
		}
	}
	return nil
}

func onlyNever(share []string) bool {
	return !slices.ContainsFunc(share, func(s string) bool { return s != shareNever })
}

// variants is every policy with every way to share and every placement that goes with it.
func (c *simCommand) variants(shared, unshared []string) []variant {
	var all []variant
	for _, share := range c.Share {
		fitting, standard := shared, placementGreedy
		switch {
		case share == shareNever && onlyNever(c.Share): // greedy too, on one pool of GPUs with a job each
			fitting, standard = append(slices.Clone(unshared), shared...), placementConsolidated
		case share == shareNever:
			fitting, standard = unshared, placementConsolidated
		case share != shareFloor && share != shareAlways: // a rule of another system has its own placement
			fitting, standard = nil, placementGreedy
		}
		placements := intersect(c.Placement, fitting)
		if len(placements) == 0 {
			placements = []string{standard}
		}
		for _, p := range c.Policy {
			for _, place := range placements {
				all = append(all, variant{p, place, share})
				if share == shareFloor && c.Adjust.Predict != "" {
					all = append(all, variant{p, place, shareOracle})
				}
			}
		}
	}
	return all
}

func intersect(list, with []string) []string {
	var both []string
	for _, v := range list {
		if slices.Contains(with, v) {
			both = append(both, v)
		}
	}
	return both
}

func (c *simCommand) checkCluster() error {
	const most = 1_000_000
	switch {
	case c.Nodes > most:
		return flagError("--nodes", fmt.Sprint(c.Nodes), fmt.Sprintf("%d nodes are outside [1, %d]", c.Nodes, most), "", "write the number of machines")
	case c.GPUsPerNode > 1024:
		return flagError("--gpus-per-node", fmt.Sprint(c.GPUsPerNode), fmt.Sprintf("%d GPUs per node are outside [1, 1024]", c.GPUsPerNode), "", "8 is usual")
	case c.Nodes > 0 && c.Cluster != "":
		return flagError("--nodes", fmt.Sprint(c.Nodes), "--nodes and --cluster both describe the cluster", "", "leave one of them out")
	case c.Fill < 0 || c.Fill > 10:
		return flagError("--fill", fmt.Sprint(c.Fill), fmt.Sprintf("fill %v is outside (0, 10]", c.Fill), "it is a multiple of the cluster's GPUs", "1.3")
	case c.Fill > 0 && c.Read.Format != "openb":
		return flagError("--fill", fmt.Sprint(c.Fill), "--fill needs --format openb", "pods without departures are drawn from a pod list", "add --format openb, or leave --fill out")
	case c.RestartCost < 0:
		return flagError("--restart-cost", c.RestartCost.String(), "the restart cost is negative", "", "30s")
	}
	return nil
}
