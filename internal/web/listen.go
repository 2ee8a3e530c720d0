package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/web/client"
)

// Listeners are what a Server listens on. TCP may be nil; the sockets are, until Open.
type Listeners struct {
	Unix  *net.UnixListener
	Stdin *net.UnixListener
	TCP   net.Listener
	state string
	paths []string
}

// Listen listens on a TCP address, unless it is "". The sockets of the state folder are left to Open: another daemon may have them.
func Listen(ctx context.Context, state, address string) (*Listeners, error) {
	l := &Listeners{state: state}
	if address == "" {
		return l, nil
	}
	var err error
	l.TCP, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	return l, err
}

// Open makes the sockets of the state folder, which this process alone must use by now. What an earlier process left is replaced.
// Once it is done it does nothing.
func (l *Listeners) Open() error {
	if l.Unix != nil {
		return nil
	}
	var err error
	if l.Stdin == nil {
		if l.Stdin, err = l.socket(filepath.Join(l.state, client.StdinName)); err != nil {
			return err
		}
	}
	l.Unix, err = l.socket(filepath.Join(l.state, client.SocketName)) // last: who finds it finds the other
	return err
}

// socket listens on a path, however long it is. Anybody may connect: who it is decides.
func (l *Listeners) socket(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replace a socket: %w", err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	defer func() { _ = dir.Close() }() // it was read from
	name := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	listener.SetUnlinkOnClose(false) // that name ends here
	l.paths = append(l.paths, path)
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(fmt.Errorf("open a socket to users: %w", err), listener.Close())
	}
	return listener, nil
}

// Close stops listening and removes the sockets. It may be called again.
func (l *Listeners) Close() {
	if l.TCP != nil {
		_ = l.TCP.Close() // it may be closed
	}
	for _, u := range []*net.UnixListener{l.Unix, l.Stdin} {
		if u != nil {
			_ = u.Close() // it may be closed
		}
	}
	for _, path := range l.paths {
		_ = os.Remove(path) // it may be gone
	}
	l.paths = nil
}

// door is a socket that knows who comes in.
type door struct {
	*net.UnixListener
	uid   int // of the daemon
	inner *quota
}

// guest is a connection with who is behind it.
type guest struct {
	*net.UnixConn
	caller box.Caller
	leave  func()
}

// Accept implements net.Listener. Who has too many connections is turned away.
func (d *door) Accept() (net.Conn, error) {
	for {
		conn, err := d.AcceptUnix()
		if err != nil {
			return nil, err
		}
		caller, err := identify(conn, d.uid)
		if err != nil || !d.inner.enter(caller.UID, caller.Admin) {
			_ = conn.Close() // nothing was said
			continue
		}
		return &guest{conn, caller, sync.OnceFunc(func() { d.inner.leave(caller.UID) })}, nil
	}
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.leave()
	return g.UnixConn.Close()
}

// identify asks the kernel who connected.
func identify(conn *net.UnixConn, daemon int) (box.Caller, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return box.Caller{}, err
	}
	var cred *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) { cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, asked); err != nil {
		return box.Caller{}, err
	}
	uid := int(cred.Uid)
	return box.Caller{UID: uid, GID: int(cred.Gid), PID: int(cred.Pid), Admin: uid == 0 || uid == daemon}, nil
}

// crowd bounds the connections of a listener whose callers are not known yet.
type crowd struct {
	net.Listener
	inner *quota
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if !c.inner.enter(0, true) {
			_ = conn.Close() // nothing was said
			continue
		}
		return &visitor{conn, sync.OnceFunc(func() { c.inner.leave(0) })}, nil
	}
}

// visitor is a connection of a crowd.
type visitor struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.leave()
	return v.Conn.Close()
}
