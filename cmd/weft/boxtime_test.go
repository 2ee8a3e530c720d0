package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/trace"
)

func TestParseTime(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "2h30m": 150 * time.Minute, "1d": day, "1.5d": 36 * time.Hour, "1d12h": 36 * time.Hour,
		"12:00:00": 12 * time.Hour, "1-12:00:00": 36 * time.Hour, "100:00:01": 100*time.Hour + time.Second, "500ms": time.Second / 2, "0:00:01": time.Second} {
		if got, err := parseTime("max-time", text); err != nil || got != want {
			t.Errorf("%s is %v, %v; want %v", text, got, err, want)
		}
	}
	for text, fix := range map[string]string{"90": "90s or 90m", "1.5": "1.5s or 1.5m", "12:30": "12m30s or 12h30m", "1-12": "1d12h, or 1-12:00:00", "1-12:30": "1d12h, or 1-12:30:00",
		"": "90s", "soon": "90s", "-5s": "leave the flag out", "0s": "leave the flag out", "0:00:00": "leave the flag out", "1d-5h": "90s", "9999d": "leave the flag out",
		"999999d": "leave the flag out", "12:61:00": "90s", "1-2-3": "90s", "1h 30m": "90s", "+5s": "90s", "1w": "90s"} {
		_, err := parseTime("max-time", text)
		if faults := faultsIn(err); len(faults) != 1 || !strings.Contains(faults[0].Fix, fix) || faults[0].Column != "max-time" {
			t.Errorf("%q: %v", text, faults)
		}
	}
}

func TestParseArray(t *testing.T) {
	for text, want := range map[string]box.Array{"0-31": {First: 0, Last: 31}, "5-5": {First: 5, Last: 5}, "7-10006": {First: 7, Last: 10006}} {
		if got, err := parseArray(text); err != nil || *got != want {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for text, fix := range map[string]string{"": "0-31", "32": "0-31, or 32-32", "0": "0-0, or 0-0", "1000000": "0-9999", "0-999999": "0-9999", "7-10007": "7-10006", "31-0": "0-31", "-3": "0-31",
		"0-": "0-31", "a-b": "0-31", "0-31:4": "0-31", "1,3": "0-31", "0-31%4": "0-31", "0-99999999999": "0-31", "1-2-3": "0-31"} {
		_, err := parseArray(text)
		if faults := faultsIn(err); len(faults) != 1 || faults[0].Fix != fix {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestParseIDs(t *testing.T) {
	for words, want := range map[string]string{"44": "44", "44-46": "44-46", "44,46 45 44": "44,46,45", "1-3 2-4": "1-4"} {
		got, err := parseIDs(strings.Fields(words))
		if err != nil || idsInOneWord(got) != want {
			t.Errorf("%s is %s, %v; want %s", words, idsInOneWord(got), err, want)
		}
	}
	for _, words := range []string{"0", "-1", "a", "", "1-", "2-1", "1-10001", "1-9000 20000-29000", "1,,2", "99999999999999999999", "1.5", "0x1"} {
		if list, err := parseIDs(strings.Split(words, " ")); err == nil {
			t.Errorf("%q is %d jobs", words, len(list))
		}
	}
}

// checkRefusal holds that a text that is not taken is refused as a fault that says what to write.
func checkRefusal(t *testing.T, text string, err error) {
	t.Helper()
	var faults trace.Errors
	if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Message == "" || faults[0].Fix == "" {
		t.Fatalf("%q: %v", text, err)
	}
}

func FuzzParseTime(f *testing.F) {
	for _, text := range []string{"90", "1-12", "1d12h", "12:00:00", "1-12:00:00", "1e9d", "999999d9999h", "-1h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseTime("max-time", text)
		if err != nil {
			checkRefusal(t, text, err)
		} else if again, err := parseTime("max-time", d.String()); d <= 0 || d > mostTime || err != nil || again != d {
			t.Fatalf("%q is %v, which is %v, %v", text, d, again, err)
		}
	})
}

func FuzzParseRanges(f *testing.F) {
	for _, text := range []string{"0-31", "44", "44-75", "1,3-4", "1000000", "9-1", "18446744073709551615"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseArray(text)
		if err != nil {
			checkRefusal(t, text, err)
		} else if again, err := parseArray(fmt.Sprintf("%d-%d", a.First, a.Last)); a.First < 0 || a.Len() < 1 || a.Len() > mostArray || err != nil || *again != *a {
			t.Fatalf("%q is %v", text, a)
		}
		list, err := parseIDs([]string{text})
		if err != nil {
			checkRefusal(t, text, err)
		} else if again, err := parseIDs([]string{idsInOneWord(list)}); len(list) == 0 || len(list) > mostIDs || err != nil || len(again) != len(list) {
			t.Fatalf("%q is %d jobs, then %d, %v", text, len(list), len(again), err)
		}
	})
}

// listed is a source for tests.
type listed map[string]string

func (k listed) candidates(kind, state string) []candidate {
	var list []candidate
	for word := range strings.FieldsSeq(k[kind]) {
		list = append(list, candidate{word, state})
	}
	return list
}

func TestComplete(t *testing.T) {
	var c struct {
		boxCommands
		Color string `enum:"auto,always,never" default:"auto"`
		Quiet bool   `short:"q"`
	}
	parser, err := kong.New(&c, kong.Name("weft"))
	if err != nil {
		t.Fatal(err)
	}
	from := listed{"jobs": "44 45 7", "live": "44", "gpus": "gpu0 gpu1", "classes": "burstable besteffort guaranteed", "users": "ana", "profiles": "bert:8 bert:16"}
	for _, x := range []struct{ line, want string }{
		{"st", "stop status"},
		{"-q st", "stop status"},
		{"config ", "check show"},
		{"completion ", "bash zsh fish"},
		{"run --fl", "--floor"},
		{"run --floor=", ""},
		{"run --class b", "burstable besteffort"},
		{"run --class = b", "burstable besteffort"},
		{"run --class =", "burstable besteffort guaranteed"},
		{"run --class=be", "--class=besteffort"},
		{"run --profile bert : 1", "bert:16"},
		{"run --workdir ", ":folders"},
		{"run -d ", ":commands"},
		{"run -- ", ":commands"},
		{"run -d --floor 0.9 -- python ", ":files"},
		{"run python --class ", ":files"},
		{"stop 44 ", "44"},
		{"logs 4", "44 45"},
		{"logs -f 4", "44 45"},
		{"logs 44 ", ""},
		{"wait 4", "44"},
		{"drain g", "gpu0 gpu1"},
		{"ps -u ", "ana"},
		{"ps ", ""},
		{"--color ", "auto always never"},
		{"--nonsense=", ""},
		{"nonsense ", ""},
	} {
		var got []string
		words := strings.Split(x.line, " ")
		for _, c := range complete(parser.Model.Node, joinWords(words), from) {
			if x.line != "" {
				got = append(got, c.word)
			}
		}
		if x.line == "nonsense " {
			got = nil // whatever comes after it
		}
		if strings.Join(got, " ") != x.want {
			t.Errorf("%q: %v, want %s", x.line, got, x.want)
		}
	}
	if got := complete(parser.Model.Node, []string{"logs", "--state", "/x", "4"}, from); len(got) != 2 || got[0].about != "/x" {
		t.Errorf("the daemon of /x: %v", got)
	}
	if got := complete(parser.Model.Node, nil, from); len(got) < 13 {
		t.Errorf("nothing typed: %v", got)
	}
}

func TestOwnEnvironment(t *testing.T) {
	got := ownEnvironment([]string{"A=b", "WEFT_SOCKET=/x", "WEFT_ARRAY_INDEX=3", "LD_PRELOAD=/a/libweft.so", "LD_PRELOAD=/o.so:/a/libweft.so /p.so", "WEFT_FLOOR=0.8", "EMPTY="})
	if text := strings.Join(got, " "); text != "A=b LD_PRELOAD=/o.so:/p.so WEFT_FLOOR=0.8 EMPTY=" {
		t.Error(text)
	}
}
