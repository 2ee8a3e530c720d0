package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/trace"
)

// memory is each job's profile, and whether any job states memory. A job's profile column names a shape that spreads
// its own memory, or a file of weft profile, whose bytes then count.
func memory(jobs []cluster.Job) ([]profile.Profile, bool, error) {
	profiles := make([]profile.Profile, len(jobs))
	files := map[string]profile.Profile{}
	stated := false
	for j := range jobs {
		m := &jobs[j].Memory
		if shape, ok := profile.NamedShape(m.Profile); ok {
			persistent := m.Persistent
			if persistent == 0 {
				persistent = m.Peak
			}
			profiles[j] = profile.New(persistent, m.Peak, shape)
		} else if err := readProfile(m.Profile, jobs[j].ID, files); err != nil {
			return nil, false, err
		} else {
			profiles[j] = files[m.Profile]
		}
		stated = stated || profiles[j].Peak() > 0
	}
	return profiles, stated, nil
}

// readProfile reads a profile file once.
func readProfile(path, job string, files map[string]profile.Profile) error {
	if _, ok := files[path]; ok {
		return nil
	}
	p, err := readFile(path, func(file string, r io.Reader) (profile.Profile, error) {
		p, _, err := recording.ReadProfile(file, r)
		return p, err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return trace.Errors{{Code: "no_profile", Message: fmt.Sprintf("job %s: no profile %q", job, path), File: path, Column: "profile",
			Value: path, Why: "a profile is the shape of memory over an iteration",
			Fix: "one of " + strings.Join(profile.ShapeNames(), ", ") + ", or a file of weft profile"}}
	}
	files[path] = p
	return err
}
