package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// SeveralError says that several daemons could be meant.
type SeveralError struct {
	States []string // their state folders, sorted
}

func (e *SeveralError) Error() string {
	return "several weft daemons run: " + strings.Join(e.States, ", ")
}

// Find finds the daemon to ask. state names its folder; "" takes WEFT_STATE, else the default folder if a daemon answers
// there, else the one that is registered and serves this user. The error is an *UnreachableError, a *SeveralError, or what
// ended ctx.
func Find(ctx context.Context, state string) (*Client, error) {
	if state == "" {
		state = os.Getenv("WEFT_STATE")
	}
	named := state != ""
	if !named {
		state = DefaultState()
	}
	socket, err := filepath.Abs(filepath.Join(state, SocketName))
	if err != nil {
		return nil, fmt.Errorf("state folder %s: %w", state, err)
	}
	_, err = knock(ctx, socket)
	if err == nil {
		return New(socket), nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if named {
		return nil, &UnreachableError{Socket: socket, Err: cause(err)}
	}
	found := registered(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case len(found) == 0:
		return nil, &UnreachableError{Socket: socket, Err: cause(err)}
	case len(found) == 1:
		return New(found[0]), nil
	}
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return nil, &SeveralError{found}
}

// cause is an error without the names of functions and sockets around it.
func cause(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// DefaultState is where a daemon of this user keeps its state, if it is not told otherwise.
func DefaultState() string {
	if os.Geteuid() == 0 {
		return "/var/lib/weft"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "weft")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(os.TempDir(), "weft-"+strconv.Itoa(os.Geteuid()), "state")
	}
	return filepath.Join(home, ".local", "state", "weft")
}

// registered lists the sockets of all registered daemons that live and serve this user, sorted. Entries of dead ones are removed.
func registered(ctx context.Context) []string {
	var found []string
	for _, dir := range runtimeFolders() {
		if trusted(dir) != nil {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // it was removed meanwhile
		}
		for _, e := range entries {
			link := filepath.Join(dir, e.Name())
			socket, err := os.Readlink(link)
			if err != nil || !filepath.IsAbs(socket) {
				continue
			}
			owner, err := knock(ctx, socket)
			switch {
			case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
				_ = os.Remove(link) // another may have done that, or may not let us
			case err == nil && (owner == 0 || owner == os.Geteuid() || os.Geteuid() == 0):
				found = append(found, socket)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// knockTime is how long that may take: the kernel answers at once, whatever the daemon does, but this process may have to wait for a
// processor.
const knockTime = 10 * time.Second

// knock connects to a socket and says whose process listens.
func knock(ctx context.Context, socket string) (uid int, err error) {
	ctx, cancel := context.WithTimeout(ctx, knockTime)
	defer cancel()
	conn, err := dial(ctx, socket)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	stream, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a socket of this machine")
	}
	raw, err := stream.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) { cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, asked); err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}

// longestSocket is how many bytes of a path the kernel takes as the name of a socket.
const longestSocket = 107

// dial connects to a socket, however long its path is.
func dial(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	if len(socket) <= longestSocket {
		return d.DialContext(ctx, "unix", socket)
	}
	dir, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: err}
	}
	defer func() { _ = dir.Close() }() // it was read from
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket)))
}
