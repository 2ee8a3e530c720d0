package local

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"weft.dev/weft/internal/box"
)

// The buckets of the database. Keys of jobs and events are their numbers, big-endian, so that they are in order.
var (
	bucketJobs   = []byte("jobs")
	bucketEvents = []byte("events")
	bucketMeta   = []byte("meta") // what there is one of, by name
)

// Names in bucketMeta.
const (
	metaVersion  = "version"
	metaEstimate = "estimate" // the book of what is known of jobs
	metaUsage    = "usage"    // of each user
	metaDrained  = "drained"  // GPUs, by UUID
	metaEvents   = "events"   // below which the numbers of events are taken
	metaNext     = "next"     // number of the next job, where those before it are forgotten
)

// storeVersion is that of the layout above.
const storeVersion = 1

// change is one thing to be written.
type change struct {
	bucket, key []byte
	value       []byte // nil deletes
}

// store is the database. Writes of many callers that come together become one transaction, with one sync.
type store struct {
	db      *bbolt.DB
	pending chan commit
	ended   chan struct{}
}

type commit struct {
	changes []change
	done    chan<- error
}

// mostCommits is how many commits become one transaction.
const mostCommits = 256

// errCorrupt says that the database cannot be read.
var errCorrupt = errors.New("the database is corrupt")

// openStore opens the database at a path and reads every job, so that a corrupt file is noticed before anything rests on it.
func openStore(path string) (s *store, jobs []*record, err error) {
	// The database panics on pages that cannot be, and reading beyond the end of a file that was cut is a fault. The list of free
	// pages is kept in the file, for to make it anew pages are walked in a goroutine that cannot be guarded so.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			s, jobs, err = nil, nil, fmt.Errorf("%w: %v", errCorrupt, r)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType})
	switch {
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return nil, nil, fmt.Errorf("%w: %w", errCorrupt, err)
	case err != nil:
		return nil, nil, fmt.Errorf("open the database: %w", err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return prepare(tx, &jobs) })
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	s = &store{db: db, pending: make(chan commit, mostCommits), ended: make(chan struct{})}
	go s.serve()
	return s, jobs, nil
}

// prepare makes the buckets, holds the version against ours and reads the jobs.
func prepare(tx *bbolt.Tx, jobs *[]*record) error {
	for _, name := range [][]byte{bucketJobs, bucketEvents, bucketMeta} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	version := storeVersion
	meta := tx.Bucket(bucketMeta)
	if text := meta.Get([]byte(metaVersion)); text != nil {
		if err := json.Unmarshal(text, &version); err != nil {
			return fmt.Errorf("%w: its version is %q", errCorrupt, text)
		}
	}
	if version != storeVersion {
		return fmt.Errorf("the database has version %d, this weft knows %d", version, storeVersion)
	}
	if err := meta.Put([]byte(metaVersion), []byte("1")); err != nil {
		return err
	}
	return tx.Bucket(bucketJobs).ForEach(func(key, value []byte) error {
		var r record
		if err := json.Unmarshal(value, &r); err != nil || len(key) != 8 || binary.BigEndian.Uint64(key) != uint64(r.ID) {
			return fmt.Errorf("%w: job %x", errCorrupt, key)
		}
		*jobs = append(*jobs, &r)
		return nil
	})
}

// serve writes until close.
func (s *store) serve() {
	defer close(s.ended)
	for first := range s.pending {
		batch := []commit{first}
	gather:
		for len(batch) < mostCommits {
			select {
			case c, ok := <-s.pending:
				if !ok {
					break gather
				}
				batch = append(batch, c)
			default:
				break gather
			}
		}
		err := s.apply(batch)
		for _, c := range batch {
			c.done <- err
		}
	}
}

// apply makes one transaction of commits. A page that turns out to be corrupt is an error of those, and no end of the daemon.
func (s *store) apply(batch []commit) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errCorrupt, r)
		}
	}()
	return s.db.Update(func(tx *bbolt.Tx) error {
		for _, c := range batch {
			if err := c.apply(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c commit) apply(tx *bbolt.Tx) error {
	for _, x := range c.changes {
		b := tx.Bucket(x.bucket)
		if x.value == nil {
			if err := b.Delete(x.key); err != nil {
				return err
			}
			continue
		}
		if err := b.Put(x.key, x.value); err != nil {
			return err
		}
	}
	return nil
}

// write makes changes durable, all or none.
func (s *store) write(changes ...change) error {
	done := make(chan error, 1)
	s.pending <- commit{changes, done}
	if err := <-done; err != nil {
		return fmt.Errorf("write to the database: %w", err)
	}
	return nil
}

// meta reads what is kept under a name; false where nothing is.
func (s *store) meta(name string, into any) (bool, error) {
	var text []byte
	err := s.db.View(func(tx *bbolt.Tx) error {
		text = append(text, tx.Bucket(bucketMeta).Get([]byte(name))...)
		return nil
	})
	if err != nil || text == nil {
		return false, err
	}
	return true, json.Unmarshal(text, into)
}

// events reads the events that were kept, oldest first, at most so many of the last ones.
func (s *store) events(most int) (events []box.Event, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketEvents).Cursor()
		for key, value := c.Last(); key != nil && len(events) < most; key, value = c.Prev() {
			var e box.Event
			if err := json.Unmarshal(value, &e); err != nil {
				return fmt.Errorf("%w: event %x", errCorrupt, key)
			}
			events = append(events, e)
		}
		return nil
	})
	for i, j := 0, len(events)-1; i < j; i, j = i+1, j-1 {
		events[i], events[j] = events[j], events[i]
	}
	return events, err
}

// close waits for what is being written.
func (s *store) close() error {
	close(s.pending)
	<-s.ended
	return s.db.Close()
}

// numbered is the key of a number.
func numbered(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// jobChange is what makes a record durable.
func jobChange(r *record) change {
	return change{bucketJobs, numbered(uint64(r.ID)), mustJSON(r)}
}

func metaChange(name string, v any) change {
	return change{bucketMeta, []byte(name), mustJSON(v)}
}

// mustJSON is the JSON of a value of our own, which always has one.
func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("local: %T has no JSON: %v", v, err))
	}
	return text
}

// replaceCorrupt moves a corrupt database aside and says where it is now.
func replaceCorrupt(path string, now time.Time) (string, error) {
	bad := fmt.Sprintf("%s.%s.bad", path, now.UTC().Format("20060102T150405"))
	return bad, os.Rename(path, bad)
}
