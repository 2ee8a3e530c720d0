package learned

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/estimate"
)

var at = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// taught is a book of n kinds, the later ones used last, all pairs of which were seen.
func taught(t *testing.T, n int) *estimate.Book {
	t.Helper()
	b, r := estimate.New(estimate.Options{}), rand.New(rand.NewPCG(1, uint64(n)))
	kind := func(i int) estimate.Kind {
		return estimate.Kind{Key: fmt.Sprintf("ml/profile/kind-%03d", i), Class: cluster.Burstable}
	}
	for i := range n {
		for l := range n {
			b.Observe(kind(i), []estimate.Kind{kind(l)}, 0.5+r.Float64()/2, 0.01+r.Float64()/100)
		}
	}
	for i := range n {
		b.Config(kind(i))
	}
	if n > 1 {
		b.Ban(kind(n-2), kind(n-1), at.Add(time.Hour))
	}
	return b
}

// stored is the ConfigMap that a patch makes of an empty one.
func stored(t *testing.T, patch []byte) *corev1.ConfigMap {
	t.Helper()
	m := &corev1.ConfigMap{}
	if err := json.Unmarshal(patch, m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 2, 30} {
		b := taught(t, n)
		patch, err := Patch(b, at)
		if err != nil {
			t.Fatal(err)
		}
		c := estimate.New(estimate.Options{})
		heard, err := Restore(c, stored(t, patch))
		if err != nil || !heard.Equal(at) {
			t.Fatalf("%d kinds: heard until %v, %v, want %v", n, heard, err, at)
		}
		want, _ := b.Encode()
		got, err := c.Encode()
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d kinds: %v\n%s", n, err, cmp.Diff(string(want), string(got)))
		}
	}
}

// TestLargeBook: of more than there is room for, what was used least recently is left out, and the book itself loses nothing.
func TestLargeBook(t *testing.T) {
	b := taught(t, 60)
	before, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	seen := func(c *estimate.Book, i, l int) int {
		return c.Seen(estimate.Kind{Key: fmt.Sprintf("ml/profile/kind-%03d", i), Class: cluster.Burstable},
			estimate.Kind{Key: fmt.Sprintf("ml/profile/kind-%03d", l), Class: cluster.Burstable})
	}
	for _, limit := range []int{100 << 10, 30 << 10, 5 << 10} {
		packed, err := pack(b, limit)
		if err != nil || len(packed) > limit || len(packed) < limit/4 {
			t.Fatalf("%d bytes of %d, %v", len(packed), limit, err)
		}
		c := estimate.New(estimate.Options{})
		if _, err := Restore(c, &corev1.ConfigMap{BinaryData: map[string][]byte{bookKey: packed}}); err != nil {
			t.Fatal(err)
		}
		if seen(c, 58, 59) == 0 || len(c.Bans()) != 1 {
			t.Errorf("%d bytes: what was used last is not there", limit)
		}
		if limit < 50<<10 && seen(c, 0, 1) > 0 {
			t.Errorf("%d bytes: what was used first is there", limit)
		}
	}
	if after, err := b.Encode(); err != nil || !bytes.Equal(before, after) {
		t.Errorf("writing it down changed the book: %v", err)
	}
}

// packed is text as a ConfigMap holds it.
func packed(text []byte) *corev1.ConfigMap {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(text)
	_ = w.Close()
	return &corev1.ConfigMap{BinaryData: map[string][]byte{bookKey: out.Bytes()}, Data: map[string]string{heardKey: "soon"}}
}

// TestSpoiled: what somebody else made of the ConfigMap is refused, and leaves the book as it was.
func TestSpoiled(t *testing.T) {
	b := taught(t, 3)
	before, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*corev1.ConfigMap{
		"empty":        {},
		"not packed":   {BinaryData: map[string][]byte{bookKey: before}},
		"cut off":      {BinaryData: map[string][]byte{bookKey: packed(before).BinaryData[bookKey][:100]}},
		"no book":      packed([]byte(`{"version": 1, "kinds": 7}`)),
		"another one":  packed([]byte(`{"version": 99}`)),
		"far too much": packed(make([]byte, mostPlain+1)),
	} {
		heard, err := Restore(b, m)
		if err == nil || !heard.IsZero() || errors.Is(err, ErrNone) != (name == "empty") {
			t.Errorf("%s: %v, %v", name, heard, err)
		}
	}
	if after, err := b.Encode(); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the book has changed: %v", err)
	}
	if heard, err := Restore(b, packed(before)); err != nil || !heard.IsZero() {
		t.Errorf("a time that is none: %v, %v", heard, err)
	}
}

// FuzzRestore: whatever a ConfigMap holds is read or refused.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"version": 1, "facts": [], "kinds": [{"key": "a", "class": "burstable"}], "pairs": [], "bans": [], "pilots": [], "resting": []}`), "2026-03-01T12:00:00Z")
	f.Add([]byte{}, "")
	f.Fuzz(func(t *testing.T, text []byte, heard string) {
		m := packed(text)
		m.Data[heardKey] = heard
		b := estimate.New(estimate.Options{})
		if _, err := Restore(b, m); err != nil {
			return
		}
		if _, err := Patch(b, at); err != nil {
			t.Errorf("it was read, and cannot be written: %v", err)
		}
	})
}
