package shepherd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"weft.dev/weft/internal/unit"
)

// frames are all that a log has now.
func frames(t interface{ Fatal(...any) }, path string, from int64) []Frame {
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.SeekTo(from)
	return rest(t, l)
}

func rest(t interface{ Fatal(...any) }, l *Log) []Frame {
	var list []Frame
	for {
		f, err := l.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Bytes = bytes.Clone(f.Bytes)
		list = append(list, f)
	}
}

func diskSize(t interface{ Fatal(...any) }, path string) int64 {
	list, err := segments(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	total := int64(0)
	for _, s := range list {
		total += s.size
	}
	return total
}

// TestLogProperty writes, tears and begins attempts at random, and reads meanwhile: what is read is what was written, in order
// and at its offset, and what is missing is told.
func TestLogProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "log")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		path := filepath.Join(dir, "log")
		limit := leastLimit + unit.Bytes(rapid.IntRange(0, 100_000).Draw(t, "more than the least limit"))
		w := appendLog(path, limit)
		defer func() { w.shut() }()
		follower, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer follower.Close()
		written := map[int64]string{} // by offset
		seen := int64(0)
		check := func(list []Frame, from int64) {
			for i, f := range list {
				if f.Offset < from {
					t.Fatalf("frame at %d behind %d", f.Offset, from)
				}
				from = f.Offset + f.Size()
				if f.Stream == Weft {
					from = f.Offset
					continue
				}
				if want := written[f.Offset]; want != f.Stream.String()+string(f.Bytes) {
					t.Fatalf("%d at %d: %d bytes of %s, not %d", i, f.Offset, len(f.Bytes), f.Stream, len(want))
				}
			}
		}
		number := 0
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				for range rapid.IntRange(1, 4).Draw(t, "times") {
					s := rapid.SampledFrom([]Stream{Stdout, Stderr}).Draw(t, "stream")
					number++
					b := []byte(strings.Repeat(fmt.Sprintf("%d ", number), rapid.IntRange(0, 6000).Draw(t, "size")))
					most := int(w.segment - headerSize)
					for from := 0; from < len(b); from += most {
						part := b[from:min(len(b), from+most)]
						w.write(s, part)
						last := w.kept[len(w.kept)-1]
						written[last.end()-headerSize-int64(len(part))] = s.String() + string(part)
					}
				}
				if size := diskSize(t, path); size > int64(limit) {
					t.Fatalf("%d bytes, more than %d", size, limit)
				}
			},
			"crash": func(t *rapid.T) {
				w.shut()
				if len(w.kept) > 0 {
					last := w.kept[len(w.kept)-1]
					f := Frame{Stream: Stdout, Time: time.Now(), Offset: last.end(), Bytes: []byte(strings.Repeat("torn", 100))}
					b := f.Append(nil)
					b = b[:rapid.IntRange(0, len(b)-1).Draw(t, "torn at")]
					if rapid.Bool().Draw(t, "zeros") {
						clear(b)
					}
					file, err := os.OpenFile(filepath.Join(path, last.name()), os.O_WRONLY|os.O_APPEND, 0)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := file.Write(b); err != nil {
						t.Fatal(err)
					}
					_ = file.Close()
				}
				w = appendLog(path, limit)
			},
			"follow": func(t *rapid.T) {
				list := rest(t, follower)
				check(list, seen)
				seen = follower.Offset()
			},
			"read": func(t *rapid.T) {
				all := frames(t, path, 0)
				check(all, 0)
				if len(all) > 0 && all[0].Offset != 0 {
					t.Fatal("the first segment was dropped")
				}
				got := 0
				for _, f := range all {
					if f.Stream != Weft {
						got++
					}
				}
				// All that the kept segments hold is read.
				for offset := range written {
					for _, s := range w.kept {
						if s.start <= offset && offset < s.end() {
							got--
						}
					}
				}
				if w.kept != nil && got != 0 {
					t.Fatalf("%d frames too many", got)
				}
				from := rapid.Int64Range(0, 2_000_000).Draw(t, "from")
				check(frames(t, path, from), from)
			},
		})
	})
}

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	w := appendLog(path, leastLimit)
	total := 0
	for i := range 20_000 {
		line := fmt.Sprintf("line %d\n", i)
		w.write(Stdout, []byte(line))
		total += len(line)
	}
	w.close()
	list := frames(t, path, 0)
	if string(list[0].Bytes) != "line 0\n" || string(list[len(list)-1].Bytes) != "line 19999\n" {
		t.Errorf("from %q to %q", list[0].Bytes, list[len(list)-1].Bytes)
	}
	notes, kept := 0, int64(0)
	for i, f := range list {
		kept += f.Size()
		if f.Stream == Weft {
			notes++
			kept -= f.Size()
			if !strings.HasSuffix(string(f.Bytes), " of output are no longer kept\n") {
				t.Errorf("%q", f.Bytes)
			}
			// A reader that goes on behind the note goes on with the same frame.
			if next := frames(t, path, f.Offset+f.Size()); !bytes.Equal(next[len(next)-1].Bytes, list[len(list)-1].Bytes) {
				t.Errorf("%d frames behind the note, not %d", len(next), len(list)-i-1)
			}
		}
	}
	if notes != 1 || kept+w.dropped != int64(total+20_000*headerSize) {
		t.Errorf("%d notes, %d kept and %d dropped of %d", notes, kept, w.dropped, total+20_000*headerSize)
	}
}

// An output without a newline takes no memory, and no more than its limit of the disk.
func TestGigabyte(t *testing.T) {
	if testing.Short() {
		t.Skip("1 GB")
	}
	dir := t.TempDir()
	task := script(dir, "head -c 1000000000 /dev/zero; echo end >&2; grep VmHWM /proc/$PPID/status >&2")
	task.LogLimit = 8 * unit.MiB
	began := time.Now()
	p, err := Start("/proc/self/exe", dir, task, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	select {
	case <-p.Done():
	case <-time.After(3 * time.Minute):
		t.Fatal("it goes on")
	}
	e, err := p.Exit()
	if size := diskSize(t, LogPath(dir)); err != nil || e.Status != 0 || e.Dropped < 990_000_000 || size > int64(task.LogLimit) {
		t.Errorf("%+v, %d bytes on the disk", e, size)
	}
	if text := printed(t, dir, Stderr); !strings.HasPrefix(text, "end\n") {
		t.Errorf("the end is %q", text)
	}
	t.Logf("1 GB in %v; %s", time.Since(began).Round(time.Millisecond), printed(t, dir, Stderr))
}

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		w := appendLog(path, leastLimit)
		for i := range 30 {
			w.write(Stdout, fmt.Append(nil, i, "\n"))
			time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
		}
		w.close()
	}()
	done := func() bool {
		select {
		case <-finished:
			return true
		default:
			return false
		}
	}
	for i := range 30 {
		f, err := l.Follow(t.Context(), done)
		if err != nil || string(f.Bytes) != fmt.Sprint(i, "\n") {
			t.Fatalf("%d: %q, %v", i, f.Bytes, err)
		}
	}
	if _, err := l.Follow(t.Context(), done); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := l.Follow(ctx, func() bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a reader that goes away: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(put(t, filepath.Join(t.TempDir(), "log"), "text", 0o600)); err == nil {
		t.Error("opened a file")
	}
}

// small is a file system of so many bytes.
func small(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755,size="+size); err != nil {
		t.Skip("no file system of its own: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// fill takes the room that is left; the result gives it back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	_ = f.Close()
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDiskFull(t *testing.T) {
	dir := small(t, "1m")
	task := script(dir, `echo begin; echo > ready; until [ -e go ]; do sleep 0.01; done; seq 100000; mv go gone; until [ -e last ]; do sleep 0.01; done; sleep 0.3; echo end`)
	p := start(t, dir, task, nil)
	exists(t, filepath.Join(dir, "ready"))
	eventually(t, "output", func() bool { return printed(t, dir, Stdout) != "" })
	// The files that let it go on take room of their own.
	for _, name := range []string{"went", "finally"} {
		put(t, filepath.Join(dir, name), "", 0o600)
	}
	free := fill(t, dir)
	if err := os.Rename(filepath.Join(dir, "went"), filepath.Join(dir, "go")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all is printed", func() bool { _, err := os.Stat(filepath.Join(dir, "gone")); return err == nil })
	free()
	if err := os.Rename(filepath.Join(dir, "finally"), filepath.Join(dir, "last")); err != nil {
		t.Fatal(err)
	}
	e := ended(t, p)
	out, said := printed(t, dir, Stdout), printed(t, dir, Weft)
	if e.Status != 0 || e.Dropped == 0 || !strings.HasPrefix(out, "begin\n") || !strings.HasSuffix(out, "end\n") ||
		!strings.Contains(said, "of output were lost: no space left on device") {
		t.Errorf("%+v, said %q, %d bytes printed", e, said, len(out))
	}
	if int64(len(out))+e.Dropped != int64(len("begin\nend\n")+588895) {
		t.Errorf("%d printed and %d dropped", len(out), e.Dropped)
	}
}

// On a disk that is full from the start nothing is run; one that becomes full costs no exit.
func TestDiskFullBefore(t *testing.T) {
	dir := small(t, "200k")
	job := filepath.Join(dir, "1")
	if err := os.Mkdir(job, 0o700); err != nil {
		t.Fatal(err)
	}
	free := fill(t, dir)
	task := script(dir, "echo > ready; while [ -e ready ]; do sleep 0.01; done; exit 9")
	if _, err := Start("/proc/self/exe", job, task, nil); !errors.Is(err, unix.ENOSPC) && !strings.Contains(fmt.Sprint(err), "no space") {
		t.Errorf("started: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
		t.Error("it ran")
	}
	free()
	p := start(t, job, task, nil)
	ready := filepath.Join(dir, "ready")
	exists(t, ready)
	fill(t, dir)
	if err := os.Remove(ready); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, p); e.Status != 9 {
		t.Errorf("%+v", e)
	}
}

func TestReadOnly(t *testing.T) {
	dir := small(t, "200k")
	p := start(t, dir, script("/", "read x; exit 9"), nil)
	ended(t, p)
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Skip(err)
	}
	task := script("/", "true")
	task.Attempt = 2
	if _, err := Start("/proc/self/exe", dir, task, nil); !errors.Is(err, unix.EROFS) {
		t.Errorf("started: %v", err)
	}
	if q, err := Adopt(dir, 1); err != nil {
		t.Error(err)
	} else if e := ended(t, q); e.Status != 9 {
		t.Errorf("%+v", e)
	}
}

// FuzzLog reads anything as a log of two segments: it ends, and only whole frames at their offsets come out.
func FuzzLog(f *testing.F) {
	whole := func(offset int64, text string) []byte {
		fr := Frame{Stream: Stdout, Time: time.Unix(1, 2), Offset: offset, Bytes: []byte(text)}
		return fr.Append(nil)
	}
	f.Add(whole(0, "one"), whole(35, "two"), int64(0))
	f.Add(append(whole(0, "one"), 'w'), append([]byte("noise"), whole(41, "two")...), int64(3))
	f.Add([]byte("wfl1"), []byte{}, int64(1<<40))
	f.Add(make([]byte, 300_000), whole(300_000, ""), int64(7))
	f.Fuzz(func(t *testing.T, first, second []byte, from int64) {
		dir := t.TempDir()
		next := segment{start: int64(len(first))}
		put(t, filepath.Join(dir, segment{}.name()), string(first), 0o600)
		if len(first) > 0 {
			put(t, filepath.Join(dir, next.name()), string(second), 0o600)
		}
		l, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		l.SeekTo(from)
		at := max(0, from)
		for range (len(first)+len(second))/headerSize + 3 {
			fr, err := l.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if fr.Offset < at {
				t.Fatalf("%d after %d", fr.Offset, at)
			}
			at = fr.Offset
			if fr.Stream != Weft {
				all := append(bytes.Clone(first), second...)
				if !bytes.Equal(fr.Append(nil), all[fr.Offset:fr.Offset+fr.Size()]) {
					t.Fatalf("a frame that is not there at %d", fr.Offset)
				}
				at += fr.Size()
			}
		}
		t.Fatal("it does not end")
	})
}

// FuzzDecoder reads anything as frames that were sent, and what it reads is what was sent.
func FuzzDecoder(f *testing.F) {
	one := Frame{Stream: Stderr, Time: time.Unix(1, 2), Offset: 9, Bytes: []byte("one")}
	none := Frame{Stream: Weft, Time: time.Unix(0, 0)}
	f.Add(none.Append(one.Append(nil)))
	f.Add(one.Append(nil)[:34])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := NewDecoder(bytes.NewReader(b))
		var again []byte
		for {
			fr, err := d.Next()
			if err != nil {
				break
			}
			again = fr.Append(again)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatal("something else was read")
		}
	})
}
