// Package learned writes down what a cluster taught of its kinds of jobs, and reads it, so that a controller that takes over goes on
// with it. It is kept in a ConfigMap, which comes with weft: so the controller need not create any.
package learned

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/estimate"
)

// Keys of the ConfigMap.
const (
	bookKey  = "book.json.gz" // an estimate.Book
	heardKey = "heard"        // until when windows are in the book
)

// Bounds of what is written and read.
const (
	most      = 900 << 10 // bytes: the API takes 1 MiB, with all that an object has besides
	mostPlain = 64 << 20
)

// ErrNone is of a ConfigMap that nothing was written to yet.
var ErrNone = errors.New("nothing was learned yet")

// Patch is a merge patch of the ConfigMap by a book that knows the windows up to heard. Of more than an object takes, what was asked
// for least recently is left out. The book is not changed. O(kinds^2).
func Patch(b *estimate.Book, heard time.Time) ([]byte, error) {
	packed, err := pack(b, most)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"data": map[string]string{heardKey: heard.UTC().Format(time.RFC3339Nano)},
		"binaryData": map[string][]byte{bookKey: packed}})
}

// pack is a book in at most so many bytes.
func pack(b *estimate.Book, limit int) ([]byte, error) {
	for {
		text, err := b.Encode()
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		if _, err = w.Write(text); err == nil {
			err = w.Close()
		}
		if err != nil || out.Len() <= limit {
			return out.Bytes(), err
		}
		if b, err = b.Lesser(); err != nil {
			return nil, err
		}
	}
}

// Restore replaces what a book knows by what the ConfigMap holds, and says until when windows are in it. An error leaves the book as
// it was; it is ErrNone where nothing was written yet.
func Restore(b *estimate.Book, m *corev1.ConfigMap) (heard time.Time, err error) {
	packed, ok := m.BinaryData[bookKey]
	if !ok {
		return heard, ErrNone
	}
	fail := func(err error) (time.Time, error) {
		return time.Time{}, fmt.Errorf("ConfigMap %s/%s, %s: %w", m.Namespace, m.Name, bookKey, err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return fail(err)
	}
	text, err := io.ReadAll(io.LimitReader(r, mostPlain+1))
	if err != nil {
		return fail(err)
	}
	if len(text) > mostPlain {
		return fail(fmt.Errorf("more than %d bytes", mostPlain))
	}
	if err := b.Restore(text); err != nil {
		return fail(err)
	}
	heard, err = time.Parse(time.RFC3339Nano, m.Data[heardKey])
	if err != nil {
		return time.Time{}, nil //nolint:nilerr // the last windows then count twice, which is better than not at all
	}
	return heard, nil
}
