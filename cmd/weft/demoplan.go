package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// plan runs the commands for whoever has a job log on a generated one, and shows how each was called.
func (c *demoCommand) plan(ctx context.Context, s *session, dir string) error {
	jobs := filepath.Join(dir, "jobs.csv")
	report := filepath.Join(dir, "report.html")
	for _, step := range []struct {
		title string
		args  []string
		out   string // file for the standard output; "" shows it
	}{
		{"A week of jobs, as the Philly cluster saw them, of 13 small models", []string{"generate", "--jobs", "2000", "--seed", "42"}, jobs},
		{"The first half day of them, if they all ran at once: how many GPUs, and what does each lose?", []string{"plan", jobs, "--to", "43200"}, ""},
		{"On 4 nodes of 8 GPUs: one job a GPU, or shared while every job keeps 85 % of its speed",
			[]string{"sim", jobs, "--nodes", "4", "--gpus-per-node", "8", "--policy", "fifo,srtf", "--share", "never,floor",
				"--placement", "consolidated,greedy,heuristic", "--restart-cost", "60s", "--html", report}, ""},
		{"The same when nobody measured the pairs: placed on predictions that are corrected by what is observed (floor), beside the truth known (oracle)",
			[]string{"sim", jobs, "--nodes", "8", "--gpus-per-node", "8", "--share", "never,floor", "--placement", "consolidated,heuristic",
				"--restart-cost", "60s", "--predict", "default"}, ""},
	} {
		_, _ = fmt.Fprintf(s.stdout, "\n%s\n$ weft %s%s\n", step.title, strings.Join(step.args, " "), redirection(step.out))
		switch code := c.step(ctx, s, step.args, step.out); {
		case code == exitInterrupted:
			return context.Canceled
		case code != exitOK:
			return fmt.Errorf("weft %s ended with %d", step.args[0], code)
		}
	}
	_, _ = fmt.Fprintf(s.stdout, "\nThe report with plots: %s\n", report)
	return nil
}

func redirection(out string) string {
	if out == "" {
		return ""
	}
	return " > " + out
}

// step runs one command as the user would, with what was asked of the screen.
func (c *demoCommand) step(ctx context.Context, s *session, args []string, out string) int {
	args = append(slices.Clone(args), s.screenArgs...)
	if out == "" {
		return run(ctx, args, s.stdin, s.stdout, s.stderr)
	}
	t, err := openTarget(out)
	if err != nil {
		_, _ = fmt.Fprintln(s.stderr, "error:", err)
		return exitFailed
	}
	code := exitFailed
	if err := t.write(func(w io.Writer) error { code = run(ctx, args, s.stdin, w, s.stderr); return nil }); err != nil {
		_, _ = fmt.Fprintln(s.stderr, "error:", err)
		return exitFailed
	}
	return code
}
