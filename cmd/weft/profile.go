package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/recording/open"
	"weft.dev/weft/internal/trace"
)

// profileCommand turns recordings of GPU memory into profiles.
type profileCommand struct {
	Files   []string `arg:"" name:"file" placeholder:"FILE" help:"Recordings: a PyTorch memory snapshot, a PyTorch profiler trace, an nvidia-smi CSV, or a curve (time_ms, allocated_bytes). Plain or gzip. - reads the standard input."`
	Format  string   `default:"auto" help:"What the files are: auto, snapshot, kineto, nvidia-smi or curve."`
	GPU     string   `name:"gpu" placeholder:"N" help:"Keep one GPU of recordings that hold several."`
	Columns []string `placeholder:"A,B,..." help:"Names of the columns of an nvidia-smi table without a header."`
	Levels  int      `default:"12" help:"Levels of the memory that comes and goes, 1 to 256."`
	Name    string   `help:"Name of the profile. Default: the file's name."`
	JSON    bool     `name:"json" help:"Write JSON for programs."`
	Out     string   `placeholder:"FILE" help:"Write the profile as JSON, or as YAML when FILE ends in .yaml or .yml."`
	PNG     string   `name:"png" placeholder:"FILE" help:"Draw the curve."`
}

// Help is what weft profile --help adds.
func (profileCommand) Help() string {
	return `How to record each kind is in docs/profile.md.

Examples:
  weft profile snap.pickle
  weft profile trace.json.gz --out bert.yaml --png bert.png
  weft profile smi.csv --gpu 0
  weft profile smi.csv --columns timestamp,index,memory.used`
}

// profiled is one recording with what was found in it.
type profiled struct {
	name     string
	analysis *recording.Analysis
}

// Run implements the command.
func (c *profileCommand) Run(ctx context.Context, s *session) error {
	if err := c.check(); err != nil {
		return asInput(err, c.JSON)
	}
	profiles, err := c.read(ctx, s)
	s.progress.Done()
	if err != nil {
		return asInput(err, c.JSON)
	}
	if c.PNG != "" && len(profiles) > 1 {
		return asInput(flagError("--png", c.PNG, fmt.Sprintf("one image cannot show %d profiles", len(profiles)), "",
			"choose one with --gpu, or give one file"), c.JSON)
	}
	if err := c.save(profiles); err != nil {
		return asInput(err, c.JSON)
	}
	if c.JSON {
		s.writeJSON(document(profiles))
		return nil
	}
	return s.showProfiles(profiles)
}

func (c *profileCommand) check() error {
	formats := append([]string{open.Auto}, open.Formats()...)
	switch {
	case !slices.Contains(formats, c.Format):
		return flagError("--format", c.Format, fmt.Sprintf("unknown format %q", c.Format), "", "one of "+strings.Join(formats, ", "))
	case c.Levels < 1 || c.Levels > recording.MaxLevels:
		return flagError("--levels", fmt.Sprint(c.Levels), fmt.Sprintf("%d levels are outside [1, %d]", c.Levels, recording.MaxLevels),
			"", "12 is what placement was measured with")
	}
	return nil
}

// read reads every file. The faults of all of them are gathered: nothing is shown unless every file can be read.
func (c *profileCommand) read(ctx context.Context, s *session) ([]profiled, error) {
	var out []profiled
	var faults trace.Errors
	for _, file := range c.Files {
		recordings, err := c.readFile(ctx, s, file)
		var more trace.Errors
		var path *fs.PathError
		switch {
		case errors.As(err, &more):
			faults = append(faults, more...)
			continue
		case errors.As(err, &path):
			faults = append(faults, unusable(path))
			continue
		case err != nil:
			return nil, err
		}
		for _, r := range recordings {
			a := recording.Analyse(r, c.Levels)
			if err := a.Check(); err != nil {
				return nil, fmt.Errorf("profile of %s: %w", file, err)
			}
			out = append(out, profiled{c.name(file, r, len(recordings)), a})
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return out, nil
}

// name is what a profile is called: by --name or its file, and its GPU where there are several.
func (c *profileCommand) name(file string, r recording.Recording, of int) string {
	name := c.Name
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(file), ".gz")
		name = strings.TrimSuffix(name, filepath.Ext(name))
	}
	if of > 1 {
		name += "-gpu" + r.Device
	}
	return name
}

// mebi is the unit that progress counts in: bytes of a large file overflow nothing, but tell a person little.
const mebi = 1 << 20

func (c *profileCommand) readFile(ctx context.Context, s *session, file string) ([]recording.Recording, error) {
	r := s.stdin
	size := int64(0)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // only read from
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
		r = f
	}
	progress := func(read int64) error {
		total := size
		if read > size {
			total = 0 // inflated: how much is left is not known
		}
		s.progress.Report("profile: "+filepath.Base(file), int(read/mebi), int(total/mebi), "MiB")
		return ctx.Err()
	}
	recordings, err := open.Read(file, r, open.Options{Format: c.Format, Columns: c.Columns, Size: size, Progress: progress})
	if err != nil {
		return nil, err
	}
	return recording.Choose(file, recordings, c.GPU)
}
