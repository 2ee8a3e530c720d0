package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// journal lists the processes that have a session, a line each, written before they learn of it. Whoever may hold a token is
// in it, so that an agent which comes back knows for whom to wait. It need not outlive the machine: no process does, so it
// is not synced, and to write a line costs some microseconds.
type journal struct {
	path  string
	file  *os.File
	bytes int
}

// mostJournal is how long it gets before those that ended are left out.
const mostJournal = 1 << 20

// sessionState is a line.
type sessionState struct {
	Number  uint64 `json:"number"`
	Alloc   uint64 `json:"alloc"`
	PID     int    `json:"pid"`
	Started uint64 `json:"started"`
	GPUs    uint32 `json:"gpus"`
}

// read lists what an earlier agent wrote. A line that is not whole is the last one of an agent that was killed.
func (j *journal) read() ([]sessionState, error) {
	text, err := os.ReadFile(j.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the list of processes: %w", err)
	}
	var list []sessionState
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var s sessionState
		if json.Unmarshal(lines.Bytes(), &s) == nil {
			list = append(list, s)
		}
	}
	return list, nil
}

// begin starts the list anew.
func (j *journal) begin(list []sessionState) error {
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	for _, s := range list {
		if err := out.Encode(s); err != nil {
			return err
		}
	}
	next := j.path + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text.Bytes())
	if err = errors.Join(err, os.Rename(next, j.path)); err != nil {
		return errors.Join(err, f.Close())
	}
	j.close()
	j.file, j.bytes = f, text.Len()
	return nil
}

// add writes one line.
func (j *journal) add(s sessionState) error {
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	n, err := j.file.Write(append(line, '\n'))
	j.bytes += n
	return err
}

func (j *journal) close() {
	if j.file != nil {
		_ = j.file.Close() // every line has been written
	}
}

// state is the session's line.
func (s *session) state() sessionState {
	return sessionState{s.number, s.alloc.id, s.peer.pid, s.started, s.mask}
}

// enter writes a session down.
func (a *Agent) enter(s *session) {
	if s.observer {
		return
	}
	err := a.journal.add(s.state())
	if a.journal.bytes > mostJournal {
		err = a.journal.begin(a.sessionStates())
	}
	if err != nil {
		a.note(Event{Type: EventState, Text: err.Error()})
	}
}

// sessionStates are all sessions as they are now.
func (a *Agent) sessionStates() []sessionState {
	var list []sessionState
	for _, s := range a.sessions {
		if !s.observer && s.peer.pid > 0 {
			list = append(list, s.state())
		}
	}
	return list
}
