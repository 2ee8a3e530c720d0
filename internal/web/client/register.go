package client

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// RuntimeVariable names the environment variable with a folder in which daemons register and are looked for, in place of those
// of the system.
const RuntimeVariable = "WEFT_RUNTIME_DIR"

// runtimeFolder is where a daemon of this user registers.
func runtimeFolder() string {
	uid := os.Geteuid()
	if dir := os.Getenv(RuntimeVariable); filepath.IsAbs(dir) {
		return filepath.Join(dir, "daemons")
	}
	if uid == 0 {
		return "/run/weft/daemons"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "weft", "daemons")
	}
	return temporaryFolder(uid)
}

func temporaryFolder(uid int) string {
	return filepath.Join("/tmp/weft-"+strconv.Itoa(uid), "daemons")
}

// runtimeFolders is where this user looks for daemons. One that was started without XDG_RUNTIME_DIR is found, too.
func runtimeFolders() []string {
	own := runtimeFolder()
	if os.Getenv(RuntimeVariable) != "" || os.Geteuid() == 0 {
		return []string{own}
	}
	folders := []string{"/run/weft/daemons", own}
	if fallback := temporaryFolder(os.Geteuid()); fallback != own {
		folders = append(folders, fallback)
	}
	return folders
}

// trusted says what is wrong with a folder whose entries are to be believed: only root or this user may have written to it.
func trusted(dir string) error {
	for _, path := range []string{filepath.Dir(dir), dir} {
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || !info.IsDir() {
			return fmt.Errorf("%s is no folder", path)
		}
		if owner := int(stat.Uid); owner != 0 && owner != os.Geteuid() {
			return fmt.Errorf("%s belongs to user %d", path, owner)
		}
		if info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
			return fmt.Errorf("others may write to %s", path)
		}
	}
	return nil
}

// Register lets clients find the daemon that listens on a socket. The entry is a symbolic link, named by the pid. Older ones of the
// same socket are replaced. remove takes it back.
func Register(socket string) (remove func(), err error) {
	socket, err = filepath.Abs(socket)
	if err != nil {
		return nil, fmt.Errorf("register %s: %w", socket, err)
	}
	dir, mode := runtimeFolder(), fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o755
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return nil, fmt.Errorf("register the daemon: %w", err)
	}
	if err := trusted(dir); err != nil {
		return nil, fmt.Errorf("register the daemon: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("register the daemon: %w", err)
	}
	for _, e := range entries {
		link := filepath.Join(dir, e.Name())
		if target, err := os.Readlink(link); err == nil && target == socket {
			_ = os.Remove(link) // it may be gone
		}
	}
	link := filepath.Join(dir, strconv.Itoa(os.Getpid()))
	_ = os.Remove(link) // of a process that had this pid
	if err := os.Symlink(socket, link); err != nil {
		return nil, fmt.Errorf("register the daemon: %w", err)
	}
	return func() { _ = os.Remove(link) }, nil
}
