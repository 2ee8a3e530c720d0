package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"weft.dev/weft/internal/config"
	"weft.dev/weft/internal/report"
)

// configCommand looks into the configuration.
type configCommand struct {
	Check configCheckCommand `cmd:"" help:"Say what is wrong with it."`
	Show  configShowCommand  `cmd:"" help:"Show what is in force."`
}

// configCheckCommand checks it.
type configCheckCommand struct {
	File string `arg:"" optional:"" type:"path" placeholder:"FILE" help:"A file to check in place of the machine's."`
	JSON bool   `name:"json" help:"Write JSON for programs."`
}

// Help is what weft config check --help adds.
func (configCheckCommand) Help() string {
	return `Exit code 0: all is well, 2: it is not, and a daemon would refuse it.

Examples:
  weft config check
  weft config check new.yaml && sudo cp new.yaml /etc/weft/config.yaml`
}

// Run implements the command.
func (c *configCheckCommand) Run(s *session) error {
	sources := config.Standard(nil)
	if c.File != "" {
		if _, err := os.Stat(c.File); err != nil {
			return asInput(&fs.PathError{Op: "open", Path: c.File, Err: errors.Unwrap(err)}, c.JSON)
		}
		sources = config.Sources{Machine: c.File}
	}
	loaded, err := config.Load(sources)
	if err != nil {
		return asInput(err, c.JSON)
	}
	if c.JSON {
		s.writeJSON(map[string]any{"schema": 1, "files": orEmpty(loaded.Read)})
		return nil
	}
	for _, path := range loaded.Read {
		_, _ = fmt.Fprintf(s.stdout, "%s: ok\n", path) // the sink keeps a failure
	}
	if len(loaded.Read) == 0 {
		_, _ = fmt.Fprintf(s.stdout, "no file: neither %s nor %s is there\n", sources.Machine, sources.User)
	}
	return nil
}

// configShowCommand shows it.
type configShowCommand struct {
	Origin bool `help:"With where each value comes from."`
	JSON   bool `name:"json" help:"Write JSON for programs."`
}

// Help is what weft config show --help adds.
func (configShowCommand) Help() string {
	return `Later ones win: /etc/weft/config.yaml, config.yaml in weft in the user's folder (~/.config), WEFT_* of the environment, flags.
Administrators and the limits of users come from the first one only.

  floor: 0.9                    # of jobs that name none
  class: burstable
  priority: 10                  # 0 to 100
  listen: 127.0.0.1:7070        # of the page; or none
  state: /var/lib/weft
  log_limit: 1GiB               # of one job's log
  administrators: [ana]
  users:
    default: {weight: 1, max_gpus: 4, max_running: 8, max_waiting: 1000}
    ben: {weight: 2}

Examples:
  weft config show
  weft config show --origin`
}

// Run implements the command.
func (c *configShowCommand) Run(s *session) error {
	loaded, err := config.Load(config.Standard(nil))
	if err != nil {
		return asInput(err, c.JSON)
	}
	settings := loaded.Settings()
	if c.JSON {
		s.writeJSON(map[string]any{"schema": 1, "settings": settings})
		return nil
	}
	table := &report.Table{Columns: []report.Column{{Title: "KEY"}, {Title: "VALUE"}}}
	if c.Origin {
		table.Columns = append(table.Columns, report.Column{Title: "ORIGIN"})
	}
	for _, x := range settings {
		if x.Value == "" {
			x.Value = report.None
		}
		row := report.Cells(x.Key, x.Value)
		if c.Origin {
			row = report.Cells(x.Key, x.Value, x.Origin)
		}
		table.Rows = append(table.Rows, row)
	}
	return table.Write(s.stdout, s.screen)
}
