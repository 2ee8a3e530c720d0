package pickle

import (
	"bufio"
	"fmt"
	"io"
)

// input reads bytes and counts them.
type input struct {
	r    *bufio.Reader
	read int64
	size int64 // of the whole; 0 or less when unknown
	buf  [maxText]byte
}

func (in *input) byte() (byte, error) {
	b, err := in.r.ReadByte()
	if err == nil {
		in.read++
	}
	return b, err
}

// number reads n <= 8 bytes as a little-endian unsigned number.
func (in *input) number(n int) (uint64, error) {
	k, err := io.ReadFull(in.r, in.buf[:n])
	in.read += int64(k)
	v := uint64(0)
	for i := n - 1; i >= 0; i-- {
		v = v<<8 | uint64(in.buf[i])
	}
	return v, err
}

// bytes reads n bytes and keeps them when there are at most maxText. The slice is valid until the next call.
func (in *input) bytes(n uint64) ([]byte, error) {
	if n <= maxText {
		k, err := io.ReadFull(in.r, in.buf[:n])
		in.read += int64(k)
		return in.buf[:n], err
	}
	return nil, in.skip(n)
}

func (in *input) skip(n uint64) error {
	for n > 0 {
		k, err := in.r.Discard(int(min(n, 1<<20)))
		in.read += int64(k)
		n -= uint64(k)
		if err != nil {
			return err
		}
	}
	return nil
}

// fits holds a length against what remains of the input.
func (in *input) fits(n uint64) error {
	if left := in.size - in.read; in.size > 0 && (left < 0 || n > uint64(left)) {
		return fmt.Errorf("claims %d bytes where %d remain", n, max(left, 0))
	}
	if n > 1<<40 { // no recording is a tebibyte
		return fmt.Errorf("claims %d bytes", n)
	}
	return nil
}

// line reads to the end of a line and keeps its first most bytes.
func (in *input) line(most int) (string, bool, error) {
	var kept []byte
	for {
		b, err := in.byte()
		switch {
		case err != nil:
			return "", false, err
		case b == '\n':
			return string(kept), len(kept) <= most, nil
		case len(kept) <= most:
			kept = append(kept, b)
		}
	}
}
