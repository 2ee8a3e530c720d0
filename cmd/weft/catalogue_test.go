package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"weft.dev/weft/internal/catalogue"
)

// weft runs the program without its process.
func weft(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(ctx, args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

func TestCatalogueLists(t *testing.T) {
	for _, c := range []struct {
		args  []string
		lines int // entries shown
		holds []string
	}{
		{[]string{"catalogue"}, len(catalogue.All()), []string{"NAME", "GPU UTIL", "LICENCE"}},
		{[]string{"catalogue", "a3c"}, 3, []string{"k80", "3.829", "gavel_oracle"}},
		{[]string{"catalogue", "RESNET-18:16", "--gpu", "V100"}, 1, []string{"77.32"}},
		{[]string{"catalogue", "list", "bert:8", "--gpu", "a100-40gb"}, 1, []string{"89 %", "68 %", "18.2 GiB"}},
	} {
		code, out, errs := weft(t.Context(), c.args...)
		if code != exitOK || errs != "" {
			t.Errorf("%v: exit %d, %s", c.args, code, errs)
		}
		if lines := strings.Count(out, "\n") - 3; lines != c.lines { // titles, an empty line, the count
			t.Errorf("%v: %d entries, want %d:\n%s", c.args, lines, c.lines, out)
		}
		for _, part := range c.holds {
			if !strings.Contains(out, part) {
				t.Errorf("%v: no %q in\n%s", c.args, part, out)
			}
		}
	}
}

func TestCatalogueJSONKeepsUnknownApart(t *testing.T) {
	code, out, _ := weft(t.Context(), "catalogue", "a3c", "--gpu", "k80", "--json")
	var got struct {
		Schema  int
		Entries []map[string]any
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK || got.Schema != 1 || len(got.Entries) != 1 {
		t.Fatalf("exit %d, %v: %s", code, err, out)
	}
	for field, want := range map[string]any{
		"model": "A3C", "batch": "", "gpu": "k80", "rate": 3.829, "gpu_util_fraction": nil, "mem_util_fraction": nil,
		"persistent_bytes": nil, "peak_bytes": nil, "shape": nil, "source": "gavel_oracle", "licence": "MIT",
	} {
		if value, there := got.Entries[0][field]; !there || value != want {
			t.Errorf("%s is %v (there: %v), want %v", field, value, there, want)
		}
	}
}

func TestCatalogueNotFound(t *testing.T) {
	for _, args := range [][]string{{"catalogue", "nope\x1b[31m"}, {"catalogue", "a3c", "--gpu", "h100"}} {
		code, out, errs := weft(t.Context(), args...)
		if code != exitNotFound || out != "" || !strings.Contains(errs, "fix:") || strings.Contains(errs, "\x1b") {
			t.Errorf("%q: exit %d, %q, %q", args, code, out, errs)
		}
		code, out, errs = weft(t.Context(), append(args, "--json")...)
		var got struct{ Error struct{ Code string } }
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitNotFound || got.Error.Code != "not_found" || errs != "" {
			t.Errorf("%q --json: exit %d, %v: %s%s", args, code, err, out, errs)
		}
	}
}
