// Package open reads a recording of any known form. It tells forms apart by their content, whatever the file is called,
// and inflates gzip.
package open

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"weft.dev/weft/internal/recording"
	"weft.dev/weft/internal/recording/curvecsv"
	"weft.dev/weft/internal/recording/kineto"
	"weft.dev/weft/internal/recording/smi"
	"weft.dev/weft/internal/recording/snapshot"
)

// Auto is the format that is told by the content.
const Auto = "auto"

// Formats are the forms that can be read.
func Formats() []string { return []string{"snapshot", "kineto", "nvidia-smi", "curve"} }

// Options say how a recording is read.
type Options struct {
	Format   string   // one of Formats; empty or Auto tells it by the content
	Columns  []string // of an nvidia-smi table without a header
	Size     int64    // of the file in bytes; 0 when unknown
	Progress recording.Progress
}

// sniffed is how much of the text is looked at.
const sniffed = 1 << 12

// Read reads a recording: one for each GPU. Faults are trace.Errors.
func Read(file string, r io.Reader, o Options) ([]recording.Recording, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	size := o.Size
	if start, _ := b.Peek(2); string(start) == "\x1f\x8b" {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, broken(file, err)
		}
		b, size = bufio.NewReaderSize(&inflated{z, file}, 1<<16), 0
	}
	start, err := b.Peek(sniffed)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, err
	}
	format := o.Format
	if format == "" || format == Auto {
		if len(o.Columns) > 0 {
			format = "nvidia-smi"
		} else if format = sniff(start); format == "" {
			return nil, unknown(file, start)
		}
	}
	switch format {
	case "snapshot":
		return snapshot.Read(file, b, size, o.Progress)
	case "kineto":
		return kineto.Read(file, b, o.Progress)
	case "nvidia-smi":
		return smi.Read(file, b, o.Columns, o.Progress)
	case "curve":
		return curvecsv.Read(file, b, o.Progress)
	}
	return nil, fmt.Errorf("unknown format %q", format)
}

// inflated names the file in errors of the compression. A stream that is cut stays io.ErrUnexpectedEOF, for the readers to
// use what comes before.
type inflated struct {
	z    *gzip.Reader
	file string
}

func (i *inflated) Read(p []byte) (int, error) {
	n, err := i.z.Read(p)
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, err
	}
	return n, broken(i.file, err)
}

func broken(file string, err error) error {
	var corrupt flate.CorruptInputError
	at := int64(-1)
	message := "the gzip stream is damaged: " + err.Error()
	if errors.As(err, &corrupt) {
		at = int64(corrupt)
	}
	return recording.Bad(file, "damaged", message, at, "", "copy or compress the file again")
}

// sniff tells the format by the first bytes, "" when it is none that is known.
func sniff(start []byte) string {
	text := strings.TrimPrefix(string(start), "\xef\xbb\xbf")
	trimmed := strings.TrimLeft(text, " \t\r\n")
	first, _, _ := strings.Cut(trimmed, "\n")
	switch {
	case trimmed == "":
		return ""
	case text[0] == 0x80:
		return "snapshot" // PROTO, as protocols 2 to 5 begin
	case curvecsv.Known(first):
		return "curve"
	case slices.ContainsFunc(strings.Split(trimmed, "\n"), smi.Known):
		return "nvidia-smi"
	case trimmed[0] == '{' || trimmed[0] == '[':
		return "kineto"
	case isPickle(text):
		return "snapshot"
	}
	return ""
}

// isPickle recognises protocols 0 and 1, which have no mark: containers, or the import that a hostile pickle begins with.
func isPickle(text string) bool {
	return strings.HasPrefix(text, "(") || strings.HasPrefix(text, "}") || strings.HasPrefix(text, "]") ||
		strings.HasPrefix(text, "c") && strings.Contains(text, "\n(") || strings.HasSuffix(text, ".") && strings.Contains(text, "\n")
}

func unknown(file string, start []byte) error {
	message := "this is no recording that weft knows"
	switch {
	case len(start) == 0:
		message = "the file is empty"
	case strings.HasPrefix(string(start), "PK\x03\x04"):
		message = "this is a zip archive"
	case strings.HasPrefix(string(start), "\x28\xb5\x2f\xfd"):
		message = "this is compressed with zstd"
	}
	return recording.Bad(file, "unknown_format", message, -1, "",
		"give a PyTorch memory snapshot, a PyTorch profiler trace, an nvidia-smi CSV or a curve (time_ms, allocated_bytes); "+
			"plain or gzip; --format names one of "+strings.Join(Formats(), ", "))
}
