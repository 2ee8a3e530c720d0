package shepherd

import (
	"errors"
	"io/fs"
)

// End is the offset behind the last byte of a log: 0 of one that nothing was written to yet.
func End(path string) (int64, error) {
	list, err := segments(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return list[len(list)-1].end(), nil
}
