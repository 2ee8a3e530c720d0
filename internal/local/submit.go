package local

import (
	"fmt"
	"hash/fnv"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/box"
)

// Bounds of what is submitted.
const (
	mostArray    = 10_000
	mostWaiting  = 100_000 // of all users: beyond that nobody could tell why a job waits
	longestName  = 128
	mostPriority = 100
)

// Submit files a job, or one for each index of its array. It returns once they are durable: from then on they are not lost.
// Errors are *box.Error.
func (b *Box) Submit(c box.Caller, s box.Spec) ([]box.ID, error) {
	if err := b.checkSubmit(c, &s); err != nil {
		return nil, err
	}
	name := userName(c.UID)
	n := 1
	if s.Array != nil {
		n = s.Array.Len()
	}
	b.mu.Lock()
	if err := b.checkQueue(&s, name, n); err != nil {
		b.mu.Unlock()
		return nil, err
	}
	template, err := b.resolve(&s, name)
	if err != nil {
		b.mu.Unlock()
		return nil, err
	}
	template.UID, template.GID, template.User = c.UID, c.GID, name
	records := b.number(template, n)
	b.mu.Unlock()

	changes := make([]change, 0, n)
	for _, r := range records {
		changes = append(changes, jobChange(r))
	}
	if err := b.store.write(changes...); err != nil {
		return nil, &box.Error{Kind: box.Trouble, Code: "not_durable", Message: err.Error(), Why: "a job is accepted once it is on the disk", Fix: "make room, then submit it again"}
	}
	b.o.Faults("submitted")
	for _, r := range records {
		if err := b.copyRecord(r); err != nil {
			b.o.Log.Warn("a job's second copy was not written", "job", r.ID, "fault", err)
			break
		}
	}
	return b.enter(records), nil
}

// number gives records their numbers. The mutex is held. Numbers of jobs that fail to become durable are not used again.
func (b *Box) number(template *record, n int) []*record {
	first := b.next
	b.next += box.ID(n)
	records := make([]*record, n)
	for i := range records {
		r := *template
		r.ID = first + box.ID(i)
		if r.Array != nil {
			r.First, r.Index = first, r.Array.First+i
		}
		records[i] = &r
	}
	return records
}

// enter makes durable records known.
func (b *Box) enter(records []*record) []box.ID {
	ids := make([]box.ID, len(records))
	b.mu.Lock()
	for i, r := range records {
		ids[i] = r.ID
		b.insert(&job{record: *r, ended: make(chan struct{})})
	}
	last := records[len(records)-1]
	text := fmt.Sprintf("%s, floor %s", last.Class, percent(last.Floor))
	if len(records) > 1 {
		text = fmt.Sprintf("%d jobs to %d, %s", len(records), last.ID, text)
	}
	b.note(box.Event{Type: box.EventSubmitted, Job: records[0].ID, Name: records[0].Name, Text: text})
	b.mu.Unlock()
	b.plan()
	return ids
}

// insert files a job in order of its number: two that were submitted at once may come in the other order. The mutex is held.
func (b *Box) insert(j *job) {
	b.jobs[j.ID] = j
	at, _ := slices.BinarySearch(b.order, j.ID)
	b.order = slices.Insert(b.order, at, j.ID)
	switch {
	case j.State == box.Done:
		close(j.ended)
	case j.State == box.Waiting && j.Stdin:
		time.AfterFunc(time.Until(j.Submitted.Add(stdinWait)), b.plan) // it waits no longer
	}
}

// checkSubmit holds a spec against what needs no knowledge of the queue.
func (b *Box) checkSubmit(c box.Caller, s *box.Spec) error {
	if b.uid != 0 && c.UID != b.uid {
		return &box.Error{Kind: box.Forbidden, Code: "other_user", Message: "this daemon runs jobs of its own user only", Why: "it is not root, and jobs run as who submits them",
			Fix: "run your own with weft up, or ask the administrator to run one as root"}
	}
	for _, check := range []func(*box.Spec) *box.Error{checkCommand, checkShare, checkArray, b.checkSize} {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

func bad(code, field, value, message, why, fix string) *box.Error {
	return &box.Error{Kind: box.BadInput, Code: code, Field: field, Value: value, Message: message, Why: why, Fix: fix}
}

func checkCommand(s *box.Spec) *box.Error {
	if len(s.Command) == 0 || !filepath.IsAbs(s.Path) {
		return bad("no_command", "CMD", "", "no program", "a job is a program with its arguments", "weft run -- python3 train.py")
	}
	if !filepath.IsAbs(s.Dir) {
		return bad("workdir", "workdir", s.Dir, "the working folder is not absolute", "", "--workdir /path")
	}
	if strings.ContainsRune(strings.Join(s.Command, "")+strings.Join(s.Env, "")+s.Path+s.Dir, 0) {
		return bad("nul", "CMD", "", "a NUL byte in the command or its environment", "no program can be given one", "remove it")
	}
	if s.Name == "" {
		s.Name = filepath.Base(s.Command[0])
	}
	if len(s.Name) > longestName || strings.ContainsFunc(s.Name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return bad("name", "name", s.Name, fmt.Sprintf("a name is printable text of at most %d bytes", longestName), "", "--name short")
	}
	return nil
}

func checkShare(s *box.Spec) *box.Error {
	switch {
	case !(s.Floor > 0 && s.Floor <= 1):
		return bad("floor", "floor", fmt.Sprint(s.Floor), fmt.Sprintf("floor %v is outside (0, 1]", s.Floor), "a floor is a share of standalone speed", floorFix(s.Floor))
	case s.Priority < 0 || s.Priority > mostPriority:
		return bad("priority", "priority", strconv.Itoa(s.Priority), fmt.Sprintf("priority %d is outside [0, %d]", s.Priority, mostPriority), "", "10")
	case s.MaxTime < 0:
		return bad("max_time", "max-time", s.MaxTime.String(), "a negative time", "", "2h30m")
	}
	return nil
}

func floorFix(floor float64) string {
	if floor > 1 && floor <= 100 {
		return fmt.Sprintf("%g for %g %%", floor/100, floor)
	}
	return "0.9 for 90 %"
}

func checkArray(s *box.Spec) *box.Error {
	if s.Array == nil {
		return nil
	}
	a := *s.Array
	switch {
	case a.First < 0 || a.Last < a.First:
		return bad("array", "array", fmt.Sprintf("%d-%d", a.First, a.Last), "an array goes from one index to a later one", "", "0-31")
	case a.Last-a.First >= mostArray:
		return bad("array_large", "array", fmt.Sprintf("%d-%d", a.First, a.Last), fmt.Sprintf("array of %d: max %d", a.Len(), mostArray), "", "submit it in parts")
	case s.Stdin:
		return bad("array_stdin", "array", "", "an array has no standard input", "many jobs cannot share one", "-d")
	}
	return nil
}

// checkSize holds what a job asks for against the machine.
func (b *Box) checkSize(s *box.Spec) *box.Error {
	if s.GPUs < 1 {
		return bad("gpus", "gpus", strconv.Itoa(s.GPUs), fmt.Sprintf("%d GPUs: min 1", s.GPUs), "", "1")
	}
	if s.GPUs > len(b.gpus) {
		return bad("TooLarge", "gpus", strconv.Itoa(s.GPUs), fmt.Sprintf("gang of %d, this machine has %d GPUs", s.GPUs, len(b.gpus)), "each worker has a GPU of its own", fmt.Sprintf("at most %d", len(b.gpus)))
	}
	return nil
}

// checkQueue holds a submission against what is there. The mutex is held.
func (b *Box) checkQueue(s *box.Spec, user string, n int) error {
	if b.closed {
		return &box.Error{Kind: box.Trouble, Code: "closing", Message: "the daemon is ending", Fix: "try again"}
	}
	waiting, all := 0, 0
	for _, j := range b.jobs {
		if j.State != box.Waiting {
			continue
		}
		all++
		if j.User == user {
			waiting++
		}
	}
	if limit := b.o.Limits(user).MaxWaiting; limit > 0 && waiting+n > limit {
		return bad("Quota", "", "", fmt.Sprintf("%d jobs would wait, %s may have %d", waiting+n, user, limit), "max_waiting in the configuration", "wait for some to start")
	}
	if all+n > mostWaiting {
		return bad("queue_full", "", "", fmt.Sprintf("%d jobs wait: max %d", all, mostWaiting), "", "wait for some to start")
	}
	for _, id := range s.After {
		if j := b.jobs[id]; j == nil {
			return bad("after", "after", id.String(), fmt.Sprintf("there is no job %d to come after", id), "", "weft ps --all lists them")
		} else if j.State == box.Done && j.Outcome != box.Succeeded {
			return bad("after_failed", "after", id.String(), fmt.Sprintf("job %d has not succeeded (%s)", id, j.Outcome), "what comes after it would never start", "leave --after out")
		}
	}
	return nil
}

// resolve makes a record of a spec: what it is alike with and what memory it has. The mutex is held.
func (b *Box) resolve(s *box.Spec, user string) (*record, error) {
	now := time.Now()
	r := &record{Spec: *s, State: box.Waiting, Submitted: now, Queued: now, Key: alike(user, s)}
	if err := b.resolveProfile(r); err != nil {
		return nil, err
	}
	largest := b.largest()
	if s.Memory > 0 {
		r.Persistent, r.PeakBytes = min(r.Persistent, s.Memory), s.Memory
	}
	if r.PeakBytes == 0 {
		r.PeakBytes = b.part()
	}
	if s.Reserved > 0 {
		r.Persistent = min(s.Reserved, r.PeakBytes)
	}
	if r.Persistent == 0 {
		r.Persistent = r.PeakBytes
	}
	switch {
	case r.PeakBytes > largest:
		return nil, bad("TooLarge", memoryField(s), r.PeakBytes.String(), fmt.Sprintf("%v: no GPU above %v", r.PeakBytes, largest), "memory is per GPU", fmt.Sprintf("at most --memory %v", largest))
	case r.PeakBytes < leastMemory || r.Persistent < leastMemory:
		return nil, bad("memory_small", memoryField(s), r.PeakBytes.String(), fmt.Sprintf("%v: min %v", min(r.PeakBytes, r.Persistent), leastMemory), "a context alone takes about as much", "--memory 1GiB")
	}
	return r, nil
}

// alike names the jobs that what is learned of one is told of: those of the same user, name and command, with all of its
// arguments, since a batch size changes everything. Who knows better says --profile.
func alike(user string, s *box.Spec) string {
	h := fnv.New64a()
	for _, word := range s.Command {
		_, _ = h.Write(append([]byte(word), 0)) // never fails
	}
	return fmt.Sprintf("%s/%s/%x", user, s.Name, h.Sum64())
}

func memoryField(s *box.Spec) string {
	if s.Memory == 0 && s.Profile != "" {
		return "profile"
	}
	return "memory"
}

// userName is the name of a user, or its number where it has none.
func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return strconv.Itoa(uid)
}

// Stdin hands the standard input of a job in, before its program begins. The box closes f when it is of no more use.
func (b *Box) Stdin(c box.Caller, id box.ID, f *os.File) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, err := b.own(c, id)
	if err == nil && (!j.Stdin || j.State != box.Waiting) {
		err = bad("stdin", "", "", fmt.Sprintf("job %d takes no input any more", id), "its program has begun, or it asked for none", "")
	}
	if err != nil {
		_ = f.Close() // nobody reads from it
		return err
	}
	if j.stdin != nil {
		_ = j.stdin.Close() // the new one counts: the client came back
	}
	j.stdin = f
	b.plan()
	return nil
}

// own is a job that a caller may do with as he likes. The mutex is held.
func (b *Box) own(c box.Caller, id box.ID) (*job, error) {
	j := b.jobs[id]
	if j == nil {
		return nil, box.NoJob(id)
	}
	if !j.owns(b.caller(c)) {
		return nil, &box.Error{Kind: box.Forbidden, Code: "not_yours", Message: fmt.Sprintf("job %d is of %s", id, j.User), Why: "only its user and an administrator may", Fix: "ask " + j.User + " or an administrator"}
	}
	return j, nil
}

// caller is a caller with the rights that the configuration gives him.
func (b *Box) caller(c box.Caller) box.Caller {
	c.Admin = c.Admin || c.UID == 0 || c.UID == b.uid || b.o.Administer(userName(c.UID))
	return c
}

func percent(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) }
