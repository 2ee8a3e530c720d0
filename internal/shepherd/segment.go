package shepherd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// segment is one file of a log, named by the offset of its first byte.
type segment struct {
	start, size int64
}

const segmentDigits = 16 // of a name, in hexadecimal

func (s segment) name() string { return fmt.Sprintf("%0*x", segmentDigits, s.start) }

func (s segment) end() int64 { return s.start + s.size }

// segments lists those of a log in order. Other files are none of it.
func segments(path string) ([]segment, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var list []segment
	for _, e := range entries {
		start, err := strconv.ParseInt(e.Name(), 16, 64)
		if err != nil || (segment{start: start}).name() != e.Name() {
			continue
		}
		if info, err := os.Stat(filepath.Join(path, e.Name())); err == nil && info.Mode().IsRegular() {
			list = append(list, segment{start, info.Size()})
		} // else it was dropped meanwhile
	}
	slices.SortFunc(list, func(a, b segment) int { return int(min(1, max(-1, a.start-b.start))) })
	return list, nil
}
