// Package local runs jobs on one machine: it queues them, starts each as a process under a shepherd and an allocation of the
// agent, observes them, moves them, and keeps all of that in a database. What to do is decided by internal/dispatch and
// internal/estimate, which are pure; this package acts.
//
// One goroutine, the loop, plans and observes. What takes long (starting a program, waiting for its end) happens in a
// goroutine of each job, and the database has one of its own. All that they share is under one mutex, which nobody holds
// while waiting for anything outside of this process.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/device"
	"weft.dev/weft/internal/dispatch"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/unit"
)

// Limits are what one user may have at once; 0 is no limit.
type Limits struct {
	Weight     float64 // of his fair share; 0 for 1
	MaxGPUs    int     // workers that run
	MaxRunning int     // jobs that run
	MaxWaiting int     // jobs that wait
}

// Options are what a box is opened with.
type Options struct {
	State      string // folder of all that it keeps
	Agent      agent.Options
	GPU        string // the GPUs' short name in the catalogue; "" where it has none
	Executable string // weft, which is also the shepherd
	Libraries  string // folder of libweft.so
	Emulated   bool
	Page       string // address of the web page, for Status
	Version    string

	Limits     func(user string) Limits // nil for none
	Administer func(user string) bool   // who may do everything besides root and the daemon's user; nil for nobody
	LogLimit   unit.Bytes               // of one job's log
	Grace      time.Duration            // between SIGTERM and SIGKILL; 30 s for 0
	Window     time.Duration            // over which a rate is observed; 20 s for 0
	Estimate   func() estimate.Options  // how predictions begin; nil for what is known of nothing
	Log        *slog.Logger             // nil for none
	Dispatch   func(*dispatch.Options)  // changes what the planner goes by; nil for its defaults
	Faults     func(point string)       // told at each point where a crash would be awkward; nil for none. For tests
}

// Defaults of Options.
const (
	defaultGrace  = 30 * time.Second
	defaultWindow = 20 * time.Second
)

// Box is a running daemon's state and what acts on it.
type Box struct {
	o     Options
	host  string
	uid   int
	begun time.Time
	lock  *os.File
	store *store
	agent *agent.Agent
	gpus  []device.GPU

	mu        sync.Mutex
	jobs      map[box.ID]*job
	order     []box.ID // of all jobs, ascending
	next      box.ID
	book      *estimate.Book
	used      map[string]float64 // GPU-seconds of each user, decayed
	drained   map[int]bool
	waits     map[box.ID]dispatch.Wait
	promised  map[box.ID]time.Time
	line      []box.ID  // those that wait, the next one first
	fresh     []box.ID  // started or ended since the last snapshot
	leftAt    time.Time // when a job last left its GPUs and nothing was made of it yet
	accounted time.Time // until when the users' time is booked
	state     machineState
	events    eventLog
	history   history
	figures   box.Figures
	degraded  map[string]string // by what it concerns
	unsaved   map[box.ID]bool   // records that could not be written
	changed   chan struct{}
	closed    bool

	kick    chan struct{} // the loop plans soon
	stop    context.CancelFunc
	ctx     context.Context // ends with Close
	workers sync.WaitGroup
}

// job is a record with what acts for it.
type job struct {
	record
	live    *attempt           // nil while no program runs
	stdin   *os.File           // handed in, until the program has it
	view    view               // what was observed of it
	held    time.Time          // not before it is tried again
	giveUp  context.CancelFunc // ends the wait for its memory; nil when it does not wait
	trouble string             // why it could not be started last
	ended   chan struct{}      // closed when it is done
	gone    bool               // it is forgotten

	writing sync.Mutex // held by who makes it durable
}

// Open opens a box: it takes the state folder, reads what is in it, starts the agent, and takes over the jobs that run.
func Open(ctx context.Context, o Options) (*Box, error) {
	b := &Box{
		o: o.withDefaults(), uid: os.Geteuid(), begun: time.Now(), jobs: map[box.ID]*job{}, next: 1, used: map[string]float64{}, drained: map[int]bool{},
		waits: map[box.ID]dispatch.Wait{}, promised: map[box.ID]time.Time{}, degraded: map[string]string{}, unsaved: map[box.ID]bool{},
		changed: make(chan struct{}), kick: make(chan struct{}, 1), figures: newFigures(),
	}
	b.host, _ = os.Hostname() // it is shown, no more
	b.ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := b.open(ctx); err != nil {
		b.stop()
		return nil, errors.Join(err, b.release())
	}
	b.workers.Go(b.loop)
	return b, nil
}

func (o Options) withDefaults() Options {
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	if o.Window <= 0 {
		o.Window = defaultWindow
	}
	if o.Limits == nil {
		o.Limits = func(string) Limits { return Limits{} }
	}
	if o.Administer == nil {
		o.Administer = func(string) bool { return false }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Faults == nil {
		o.Faults = func(string) {}
	}
	return o
}

// LockedError says who holds the state folder.
type LockedError struct {
	Dir string
	PID int
}

func (e *LockedError) Error() string { return fmt.Sprintf("%s is in use by pid %d", e.Dir, e.PID) }

func (b *Box) open(ctx context.Context) (err error) {
	if err := os.MkdirAll(filepath.Join(b.o.State, "jobs"), 0o711); err != nil {
		return fmt.Errorf("make the state folder: %w", err)
	}
	if b.lock, err = lockDir(b.o.State); err != nil {
		return err
	}
	records, err := b.openStore()
	if err != nil {
		return err
	}
	b.o.Agent.Dir = filepath.Join(b.o.State, "agent")
	if b.agent, err = agent.Open(ctx, b.o.Agent); err != nil {
		return err
	}
	b.gpus = b.o.Agent.Machine.GPUs()
	b.state = newMachineState(len(b.gpus))
	b.history = newHistory(len(b.gpus))
	if err := b.restore(); err != nil {
		return err
	}
	return b.takeOver(records) //nolint:contextcheck // jobs are watched beyond this call, until Close
}

// lockDir locks a folder for this process.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the state folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }() // not ours
		locked := &LockedError{Dir: dir}
		_, _ = fmt.Fscan(f, &locked.PID) // the holder may not have said yet
		return nil, locked
	}
	if err := errors.Join(f.Truncate(0), f.Sync()); err != nil {
		return f, err
	}
	_, err = f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return f, err
}

// openStore opens the database. A corrupt one is moved aside, and the jobs are taken from their own folders; so they are where
// it is empty and the folders are not.
func (b *Box) openStore() ([]*record, error) {
	path := filepath.Join(b.o.State, "state.db")
	var records []*record
	var err error
	b.store, records, err = openStore(path)
	if err == nil && len(records) == 0 {
		records, err = b.readCopies()
		if len(records) > 0 {
			b.degraded["state"] = "state.db was empty; jobs were read from their folders"
		}
	}
	if !errors.Is(err, errCorrupt) {
		return records, err
	}
	bad, moved := replaceCorrupt(path, time.Now())
	if moved != nil {
		return nil, errors.Join(err, moved)
	}
	b.o.Log.Error("the database was corrupt: it is kept, and the jobs are read from their folders", "kept", bad, "fault", err)
	b.degraded["state"] = fmt.Sprintf("state.db was corrupt and is kept as %s; jobs were read from their folders", filepath.Base(bad))
	if b.store, _, err = openStore(path); err != nil {
		return nil, err
	}
	return b.readCopies()
}

// readCopies reads the records that jobs have in their folders, and writes them to the new database.
func (b *Box) readCopies() ([]*record, error) {
	paths, err := filepath.Glob(filepath.Join(b.o.State, "jobs", "*", copyName))
	if err != nil {
		return nil, err
	}
	var records []*record
	var changes []change
	for _, path := range paths {
		r, err := readCopy(path)
		if err != nil {
			b.o.Log.Error("a job's folder cannot be read", "path", path, "fault", err)
			continue
		}
		records = append(records, r)
		changes = append(changes, jobChange(r))
	}
	slices.SortFunc(records, func(x, y *record) int { return int(x.ID) - int(y.ID) })
	if len(changes) == 0 {
		return nil, nil
	}
	return records, b.store.write(changes...)
}

// Close ends the daemon's part. Jobs that run go on; the next daemon takes them over.
func (b *Box) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.stop()
	b.workers.Wait()
	b.save()
	return errors.Join(b.closeEvents(), b.release())
}

// release gives back what open took, in turn.
func (b *Box) release() error {
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(b.jobs)) {
		if j := b.jobs[id]; j.live != nil {
			errs = append(errs, j.live.close())
		}
	}
	if b.agent != nil {
		errs = append(errs, b.agent.Close())
	}
	if b.store != nil {
		errs = append(errs, b.store.close())
	}
	if b.lock != nil {
		errs = append(errs, b.lock.Close())
	}
	return errors.Join(errs...)
}

// Changed is closed at the next change of what can be asked for.
func (b *Box) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// touch says that something changed. The mutex is held.
func (b *Box) touch() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// plan makes the loop plan soon.
func (b *Box) plan() {
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

// missing says whether an error is that of a file that there is not.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Dir is the state folder.
func (b *Box) Dir() string { return b.o.State }
