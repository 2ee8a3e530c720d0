package shepherd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"
)

// Stream is where a frame of a log comes from.
type Stream byte

// The streams.
const (
	Weft   Stream = iota // what weft says of the log itself
	Stdout               // of the program
	Stderr
)

// String is the name.
func (s Stream) String() string {
	switch s {
	case Weft:
		return "weft"
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	}
	return fmt.Sprintf("stream %d", byte(s))
}

// Frame is a piece of output, as it was read from the program: it may end in the middle of a line, or of a character.
type Frame struct {
	Stream Stream
	Time   time.Time
	Offset int64 // of the frame in its log, in bytes of all frames with their headers since the first
	Bytes  []byte
}

// The layout of a frame. All numbers are little-endian.
//
//	 0  4  magic
//	 4  1  stream
//	 5  3  zero
//	 8  4  length of the bytes that follow the header
//	12  4  CRC-32C of all but these four bytes
//	16  8  nanoseconds since 1970
//	24  8  offset of the header in the log
const (
	headerSize = 32
	mostBytes  = 64 << 10 // of one frame: what a pipe holds
	magic      = "wfl1"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Size is how many bytes the frame takes in the log; the next one begins there.
func (f *Frame) Size() int64 { return headerSize + int64(len(f.Bytes)) }

// Append appends the frame as it is in a log. It holds 64 KiB at most.
func (f *Frame) Append(to []byte) []byte {
	at := len(to)
	to = append(to, magic...)
	to = append(to, byte(f.Stream), 0, 0, 0)
	to = binary.LittleEndian.AppendUint32(to, uint32(len(f.Bytes)))
	to = binary.LittleEndian.AppendUint32(to, 0)
	to = binary.LittleEndian.AppendUint64(to, uint64(f.Time.UnixNano()))
	to = binary.LittleEndian.AppendUint64(to, uint64(f.Offset))
	to = append(to, f.Bytes...)
	binary.LittleEndian.PutUint32(to[at+12:], checksum(to[at:]))
	return to
}

func checksum(frame []byte) uint32 {
	sum := crc32.Update(0, castagnoli, frame[:12])
	return crc32.Update(sum, castagnoli, frame[16:])
}

// What parse may say of bytes that do not begin with a whole frame.
var (
	errShort   = errors.New("the frame is not complete")
	errInvalid = errors.New("not a frame")
)

// parse reads the frame at the start of b, which stays in use by it.
func parse(b []byte) (Frame, error) {
	if string(b[:min(len(b), len(magic))]) != magic[:min(len(b), len(magic))] {
		return Frame{}, errInvalid
	}
	if len(b) < headerSize {
		return Frame{}, errShort
	}
	length := binary.LittleEndian.Uint32(b[8:])
	if b[4] > byte(Stderr) || b[5]|b[6]|b[7] != 0 || length > mostBytes {
		return Frame{}, errInvalid
	}
	if len(b) < headerSize+int(length) {
		return Frame{}, errShort
	}
	b = b[:headerSize+length]
	if binary.LittleEndian.Uint32(b[12:]) != checksum(b) {
		return Frame{}, errInvalid
	}
	return Frame{Stream: Stream(b[4]), Time: time.Unix(0, int64(binary.LittleEndian.Uint64(b[16:]))),
		Offset: int64(binary.LittleEndian.Uint64(b[24:])), Bytes: b[headerSize:]}, nil
}

// Decoder reads frames that were sent one after the other.
type Decoder struct {
	r      io.Reader
	buffer [headerSize + mostBytes]byte
}

// NewDecoder reads frames from r.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{r: r} }

// Next is the next frame; its bytes are valid until the next call. io.EOF is the end after a whole frame,
// io.ErrUnexpectedEOF one within.
func (d *Decoder) Next() (Frame, error) {
	if _, err := io.ReadFull(d.r, d.buffer[:headerSize]); err != nil {
		return Frame{}, err
	}
	f, err := parse(d.buffer[:headerSize])
	if !errors.Is(err, errShort) {
		return f, err // it has no bytes, or is none
	}
	length := binary.LittleEndian.Uint32(d.buffer[8:])
	if _, err := io.ReadFull(d.r, d.buffer[headerSize:headerSize+length]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return parse(d.buffer[:headerSize+length])
}
