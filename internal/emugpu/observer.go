package emugpu

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// answerTime is how long a broker may take to answer.
const answerTime = 10 * time.Second

// Observer is a connection to a broker of another process, or of this one.
type Observer struct {
	c *net.UnixConn
}

// Dial connects to the broker behind a socket.
func Dial(socket string) (*Observer, error) {
	o, err := dialPlain(socket)
	if err != nil {
		return nil, err
	}
	if _, _, err := o.ask(request{Op: uint32(opHello), A: wireProtocol, B: roleObserver}); err != nil {
		o.Close()
		return nil, fmt.Errorf("socket %s: %w", socket, err)
	}
	return o, nil
}

// dialPlain connects without a word.
func dialPlain(socket string) (*Observer, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, unreachable(socket, err)
	}
	return &Observer{c}, nil
}

// UnreachableError is of a socket at which no broker answers.
type UnreachableError struct {
	Socket, Why string
	err         error
}

// Error implements error.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no emulated GPUs at %s: %s; start weft emugpu --socket %s", e.Socket, e.Why, e.Socket)
}

// Unwrap is what the system said.
func (e *UnreachableError) Unwrap() error { return e.err }

func unreachable(socket string, err error) error {
	why := err.Error()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "there is no such socket"
	case errors.Is(err, syscall.ECONNREFUSED):
		why = "their broker has ended"
	case errors.Is(err, syscall.EPROTOTYPE):
		why = "something else listens there"
	case errors.Is(err, fs.ErrPermission):
		why = "you may not use this socket"
	}
	return &UnreachableError{socket, why, err}
}

// Close ends the connection.
func (o *Observer) Close() { _ = o.c.Close() }

// Stats are the broker's figures up to now.
func (o *Observer) Stats() (Stats, error) {
	var s Stats
	_, fds, err := o.ask(request{Op: uint32(opStats)})
	if err != nil {
		return s, err
	}
	if len(fds) != 1 {
		closeAll(fds)
		return s, errors.New("the broker sent no figures")
	}
	f := os.NewFile(uintptr(fds[0]), "stats")
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

// Fault makes something go wrong.
func (o *Observer) Fault(f Fault) error {
	_, _, err := o.ask(request{Op: uint32(opFault), GPU: int32(f.GPU), A: uint64(f.Kind), B: f.Number})
	return err
}

// ask sends a request and waits for its reply. The descriptors are the caller's.
func (o *Observer) ask(q request) (*reply, []int, error) {
	q.Magic = wireMagic
	packet, err := binary.Append(nil, binary.LittleEndian, q)
	if err != nil {
		return nil, nil, err
	}
	if err := o.c.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return nil, nil, err
	}
	if _, err := o.c.Write(packet); err != nil {
		return nil, nil, fmt.Errorf("ask the broker: %w", err)
	}
	buffer, control := make([]byte, replySize), make([]byte, unix.CmsgSpace(4*8))
	n, oob, _, _, err := o.c.ReadMsgUnix(buffer, control)
	if err != nil {
		return nil, nil, fmt.Errorf("ask the broker: %w", err)
	}
	fds := descriptors(control[:oob])
	var r reply
	if n != replySize {
		closeAll(fds)
		return nil, nil, fmt.Errorf("ask the broker: a reply of %d bytes, not %d", n, replySize)
	}
	if _, err := binary.Decode(buffer, binary.LittleEndian, &r); err != nil {
		closeAll(fds)
		return nil, nil, err
	}
	if r.Status != 0 {
		closeAll(fds)
		return &r, nil, refusal(&r)
	}
	return &r, fds, nil
}

func refusal(r *reply) error {
	if text := r.text(); text != "" {
		return errors.New(text)
	}
	return fmt.Errorf("request %d was refused with status %d", r.Op, r.Status)
}

// descriptors are what came beside a packet.
func descriptors(control []byte) []int {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	var fds []int
	for i := range messages {
		if list, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, list...)
		}
	}
	return fds
}
