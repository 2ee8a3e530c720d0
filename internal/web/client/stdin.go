package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/box"
)

// Names of the sockets in a state folder.
const (
	SocketName = "weft.sock"
	StdinName  = "stdin.sock"
)

// StdinRequest goes over the socket for inputs, with one descriptor beside it. The answer is a Refusal, empty when all is well.
type StdinRequest struct {
	Job box.ID `json:"job"`
}

// Stdin hands an open file to a job as its standard input. The caller keeps its own descriptor, and may close it.
func (c *Client) Stdin(ctx context.Context, id box.ID, f *os.File) error {
	a := absence{c: c}
	for {
		err := c.stdin(ctx, id, f)
		if err == nil {
			a.over()
			return nil
		}
		if err := a.endure(ctx, err); err != nil {
			return err
		}
	}
}

func (c *Client) stdin(ctx context.Context, id box.ID, f *os.File) error {
	conn, err := dial(ctx, filepath.Join(filepath.Dir(c.socket), StdinName))
	if err != nil {
		return c.unreachable(ctx, err)
	}
	defer func() { _ = conn.Close() }() // the answer is read
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	if err := send(conn, f, StdinRequest{id}); err != nil {
		return c.unreachable(ctx, err)
	}
	line, err := bufio.NewReader(io.LimitReader(conn, 1<<16)).ReadBytes('\n')
	if err != nil {
		return c.unreachable(ctx, err)
	}
	var answer Refusal
	if err := json.Unmarshal(line, &answer); err != nil {
		return fmt.Errorf("the daemon's answer to an input: %w", err)
	}
	if answer.Error != nil {
		return answer.Error
	}
	return nil
}

// send writes a line with a descriptor beside it.
func send(conn net.Conn, f *os.File, request StdinRequest) error {
	stream, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("not a socket of this machine")
	}
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) {
		_, _, sent = stream.WriteMsgUnix(append(line, '\n'), unix.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, sent)
}
