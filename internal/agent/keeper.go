package agent

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"weft.dev/weft/internal/ledger"
	"weft.dev/weft/internal/unit"
)

// The state is written beside the reactor, so a decision waits for no disk. What must never come twice, epochs and
// numbers, is reserved ahead: an agent that comes back begins above all that may have been given out.

// stateVersion is that of the written state. Another one is put aside and not read.
const stateVersion = 1

// Numbers reserved ahead: minutes of the busiest machine.
const (
	epochsAhead   = 1 << 22
	sessionsAhead = 1 << 16
)

// state is what the next agent needs.
type state struct {
	Version int                     `json:"version"`
	Boot    string                  `json:"boot"`    // of the machine: later, no process of it lives
	Epoch   uint64                  `json:"epoch"`   // none above was given out
	Session uint64                  `json:"session"` // the same
	Alloc   uint64                  `json:"alloc"`
	Allocs  []allocState            `json:"allocs"`
	Ledgers map[string]ledger.State `json:"ledgers"` // by UUID
}

type allocState struct {
	ID      uint64        `json:"id"`
	Spec    Spec          `json:"spec"`
	UUIDs   []string      `json:"uuids"`
	Began   uint64        `json:"began"`
	Exports []exportState `json:"exports"`
}

type exportState struct {
	UUID   string        `json:"uuid"`
	Key    string        `json:"key"`
	Handle ledger.Handle `json:"handle"`
}

// keeper writes the state.
type keeper struct {
	path   string
	boot   string
	before uint64 // no agent before this one gave out an epoch above
	due    unit.Time

	file  sync.Mutex // held while it is written
	wrote uint64     // number of the last state written, so that an older one never replaces a newer

	mu     sync.Mutex
	orders []order
	taken  uint64
	ahead  struct{ epoch, session uint64 } // what the file reserves
	wake   chan struct{}
}

// order is a state on its way to the disk.
type order struct {
	state  *state
	number uint64
	done   func(error)
}

// idle is how old the state on the disk may become while nothing happens that would be missed.
const idle = time.Minute

// keep writes the state where it is due, or where what it reserves comes to its end. Taking it costs time in which nobody is
// served: it is taken so seldom that this is a hundredth.
func (a *Agent) keep(now unit.Time) {
	k := &a.state
	k.mu.Lock()
	low := a.arb.Epoch()+epochsAhead/2 > k.ahead.epoch || a.ids.session+sessionsAhead/2 > k.ahead.session
	k.mu.Unlock()
	if now < k.due && !low {
		return
	}
	a.keepThen(func(err error) {
		if err != nil {
			a.note(Event{Type: EventState, Text: err.Error()})
		}
	})
	k.due = now.Add(max(idle, 100*a.clock.now().Sub(now)))
}

// keepSoon has the state written at the next second.
func (a *Agent) keepSoon() { a.state.due = 0 }

// keepThen has the state written, and calls f on the reactor when that is done.
func (a *Agent) keepThen(f func(error)) {
	k, s := &a.state, a.take()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.taken++
	k.orders = append(k.orders, order{s, k.taken, func(err error) { a.poll.call(func() { f(err) }) }})
	select {
	case k.wake <- struct{}{}:
	default: // it is awake
	}
}

// serve writes what is ordered, until wake is closed. Of several states the newest is written for all.
func (k *keeper) serve() {
	for range k.wake {
		k.mu.Lock()
		orders := k.orders
		k.orders = nil
		k.mu.Unlock()
		if len(orders) == 0 {
			continue
		}
		err := k.write(orders[len(orders)-1])
		for _, o := range orders {
			o.done(err)
		}
	}
}

// keepAtOnce writes the state and waits for it.
func (a *Agent) keepAtOnce() error {
	k := &a.state
	k.mu.Lock()
	k.taken++
	o := order{state: a.take(), number: k.taken}
	k.mu.Unlock()
	return k.write(o)
}

// write replaces the file, at once or not at all.
func (k *keeper) write(o order) error {
	k.file.Lock()
	defer k.file.Unlock()
	if o.number < k.wrote {
		return nil
	}
	text, err := json.Marshal(o.state) //nolint:musttag // a ledger's fields keep their names: its state has a version
	if err != nil {
		return fmt.Errorf("write the agent's state: %w", err)
	}
	if err := replace(k.path, text); err != nil {
		return fmt.Errorf("write the agent's state: %w", err)
	}
	k.wrote = o.number
	k.mu.Lock()
	k.ahead.epoch, k.ahead.session = o.state.Epoch, o.state.Session
	k.mu.Unlock()
	return nil
}

// replace gives a file another content so that a crash leaves the old or the new one.
func replace(path string, text []byte) error {
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// take is the state as it is now.
func (a *Agent) take() *state {
	s := &state{
		Version: stateVersion, Boot: a.state.boot, Epoch: a.arb.Epoch() + epochsAhead, Session: a.ids.session + sessionsAhead,
		Alloc: a.ids.alloc, Ledgers: map[string]ledger.State{},
	}
	for _, al := range a.allocs {
		if al.pending == 0 {
			s.Allocs = append(s.Allocs, al.state())
		}
	}
	for _, g := range a.gpus {
		s.Ledgers[g.UUID.String()] = g.ledger.State()
	}
	return s
}

// state is the allocation's part.
func (al *allocation) state() allocState {
	s := allocState{ID: al.id, Spec: al.spec, Began: al.began}
	for _, g := range al.gpus {
		s.UUIDs = append(s.UUIDs, g.UUID.String())
	}
	for k, h := range al.exports {
		s.Exports = append(s.Exports, exportState{al.a.gpus[k.gpu].UUID.String(), hex.EncodeToString(k.key[:]), h})
	}
	return s
}
