package client

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"weft.dev/weft/internal/box"
)

// FuzzScan holds that lines come whole and in order, however they are cut.
func FuzzScan(f *testing.F) {
	f.Add([]byte("event: state\ndata: {}\n\n:\n"), 3)
	f.Add([]byte("\r\n\r\n\n"), 1)
	f.Add(bytes.Repeat([]byte("x"), 1<<17), 1000)
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		piece = max(1, piece%(1<<16))
		var got []byte
		_, err := scan(iotestReader{bytes.NewReader(data), piece}, func(line []byte, err error) bool {
			if err != nil {
				t.Fatal(err)
			}
			if bytes.ContainsRune(line, '\n') {
				t.Fatalf("a line feed in %q", line)
			}
			got = append(append(got, line...), '\n')
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		whole := data[:bytes.LastIndexByte(data, '\n')+1]
		var want []byte
		for line := range bytes.Lines(whole) {
			want = append(append(want, bytes.TrimRight(line, "\r\n")...), '\n')
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}

// iotestReader hands out pieces.
type iotestReader struct {
	in    io.Reader
	piece int
}

func (r iotestReader) Read(p []byte) (int, error) { return r.in.Read(p[:min(len(p), r.piece)]) }

// FuzzUpdate and FuzzRefusal hold that a strange daemon causes errors and nothing else.
func FuzzUpdate(f *testing.F) {
	f.Add("state", []byte(`{"status":{},"jobs":[],"gpus":null}`))
	f.Add("event", []byte(`{"seq":1}`))
	f.Add("later", []byte(`x`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		u, err := update(name, data)
		if err == nil && (u.State != nil) != (name == "state") {
			t.Fatalf("%q %q: %+v", name, data, u)
		}
	})
}

func FuzzRefusal(f *testing.F) {
	f.Add([]byte(`{"error":{"kind":"forbidden","code":"x","message":"no"}}`))
	f.Add([]byte("<html>"))
	f.Fuzz(func(t *testing.T, data []byte) {
		err := refusal(&http.Response{Status: "400 Bad Request", Body: io.NopCloser(bytes.NewReader(data))})
		if err == nil || err.Error() == "" {
			t.Fatalf("%q: no message", data)
		}
	})
}

// TestTag holds what the tag depends on.
func TestTag(t *testing.T) {
	base := box.Job{ID: 1, State: box.Waiting, Reason: &box.Reason{Text: "MemoryOverflow gpu1"}}
	same := base
	rate := .5
	same.Rate, same.Run = &rate, 9
	if Tag(&base) != Tag(&same) {
		t.Error("a rate changes the tag")
	}
	for name, change := range map[string]func(*box.Job){
		"state":     func(j *box.Job) { j.State = box.Running },
		"on":        func(j *box.Job) { j.On = []int{1} },
		"beside":    func(j *box.Job) { j.Beside = []box.ID{4} },
		"reason":    func(j *box.Job) { j.Reason = &box.Reason{Text: "MemoryOverflow gpu2"} },
		"operation": func(j *box.Job) { j.Operation = &box.Operation{Verb: box.Moved} },
		"attempt":   func(j *box.Job) { j.Attempt = 2 },
		"outcome":   func(j *box.Job) { j.Outcome = box.Lost },
	} {
		data, err := json.Marshal(base)
		if err != nil {
			t.Fatal(err)
		}
		var other box.Job
		if err := json.Unmarshal(data, &other); err != nil {
			t.Fatal(err)
		}
		change(&other)
		if Tag(&base) == Tag(&other) {
			t.Errorf("%s does not change the tag", name)
		}
	}
}
