package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
)

// counter keeps what go build prints. It prints a line for each package.
type counter struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (c *counter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.Write(p)
}

func (c *counter) text() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.all.Bytes())
}

// packages is how many packages were named: lines without a blank, since messages have some.
func (c *counter) packages() int {
	n := 0
	for line := range bytes.Lines(c.text()) {
		if line = bytes.TrimSpace(line); len(line) > 0 && !bytes.ContainsAny(line, " \t") {
			n++
		}
	}
	return n
}

// tail is the last n lines of a text.
func tail(text []byte, n int) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}

// writeWhole writes a file so that it is there whole or not at all.
func writeWhole(path string, text []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".half-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(text)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Chmod(f.Name(), mode)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
