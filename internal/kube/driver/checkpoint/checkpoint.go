// Package checkpoint is the driver's own record of the claims that it prepared or began to prepare. It outlives the driver, the
// kubelet and the machine: what the kubelet was once told is prepared, it does not ask for again.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"weft.dev/weft/internal/kube/driver/portion"
)

// Version of the file. It changes when an older weft would read a newer file wrongly.
const Version = 1

// State is how far the preparation of a claim is.
type State string

// States. Of a claim that is Started anything may be there: an allocation, a CDI file. It is not known to the kubelet as prepared.
const (
	Started   State = "PrepareStarted"
	Completed State = "PrepareCompleted"
)

// Entry is what is known of a claim.
type Entry struct {
	State   State           `json:"state"`
	Portion portion.Portion `json:"portion"`
}

// check says what is wrong with an entry that was read.
func (e *Entry) check(claim string) error {
	switch {
	case e.State != Started && e.State != Completed:
		return fmt.Errorf("state %q is unknown", e.State)
	case e.Portion.Claim.UID != claim:
		return fmt.Errorf("it is of claim %q", e.Portion.Claim.UID)
	case len(e.Portion.Devices) == 0:
		return errors.New("it has no device")
	}
	return nil
}

// VersionError says that another version wrote the file.
type VersionError struct {
	Path    string
	Version int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("checkpoint %s has version %d and this weft reads version %d: run the weft that wrote it, or drain the node and remove the file",
		e.Path, e.Version, Version)
}

// file is the checkpoint as it is written. Entries are read one by one: a bad one is of its claim alone.
type file struct {
	Version int                        `json:"version"`
	Claims  map[string]json.RawMessage `json:"claims"` // by UID
}

// Store is the checkpoint of a driver. It may be used by several goroutines.
type Store struct {
	path string

	mu      sync.Mutex
	entries map[string]Entry
	bad     map[string]Bad
}

// Bad is an entry that cannot be read. It is kept as it is until its claim is prepared anew or unprepared.
type Bad struct {
	Fault error
	text  json.RawMessage
}

// Open reads the checkpoint at a path; there may be none yet. It fails on a file of another version, and on one that is no
// checkpoint at all: what was prepared is then not known, and a person must decide.
func Open(path string) (*Store, error) {
	s := &Store{path: path, entries: map[string]Entry{}, bad: map[string]Bad{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	return s, s.read(text)
}

func (s *Store) read(text []byte) error {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return fmt.Errorf("checkpoint %s is no JSON (%w): drain the node and remove the file", s.path, err)
	}
	if head.Version != Version { // the rest may look different
		return &VersionError{s.path, head.Version}
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("checkpoint %s is unreadable (%w): drain the node and remove the file", s.path, err)
	}
	for claim, text := range f.Claims {
		var e Entry
		err := json.Unmarshal(text, &e)
		if err == nil {
			err = e.check(claim)
		}
		if err != nil {
			s.bad[claim] = Bad{err, text}
			continue
		}
		s.entries[claim] = e
	}
	return nil
}

// Entry is that of a claim.
func (s *Store) Entry(claim string) (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[claim]
	return e, ok
}

// Entries are all that could be read, by UID.
func (s *Store) Entries() map[string]Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.entries)
}

// Bad are those that could not, by UID.
func (s *Store) Bad() map[string]Bad {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.bad)
}

// Put sets the entry of a claim. It is on the disk when Put returns; where that is not possible, nothing has changed.
func (s *Store) Put(e Entry) error {
	return s.change(func(entries map[string]Entry, bad map[string]Bad) {
		entries[e.Portion.Claim.UID] = e
		delete(bad, e.Portion.Claim.UID)
	})
}

// Remove forgets a claim, in the same manner.
func (s *Store) Remove(claim string) error {
	return s.change(func(entries map[string]Entry, bad map[string]Bad) {
		delete(entries, claim)
		delete(bad, claim)
	})
}

func (s *Store) change(f func(map[string]Entry, map[string]Bad)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, bad := maps.Clone(s.entries), maps.Clone(s.bad)
	f(entries, bad)
	if err := write(s.path, entries, bad); err != nil {
		return fmt.Errorf("write the checkpoint: %w", err)
	}
	s.entries, s.bad = entries, bad
	return nil
}

// write replaces the file so that a crash, also of the machine, leaves the old one or the new one.
func write(path string, entries map[string]Entry, bad map[string]Bad) error {
	f := file{Version: Version, Claims: map[string]json.RawMessage{}}
	for claim, b := range bad {
		f.Claims[claim] = b.text
	}
	for claim, e := range entries {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		f.Claims[claim] = text
	}
	text, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	next := path + ".new"
	out, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
