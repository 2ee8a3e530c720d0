package image

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Program is a program at a path in an image, with everything that the dynamic loader of this machine finds for it: the
// loader itself and each shared library, under the paths they have here. A static program comes alone.
func Program(ctx context.Context, from, path string) ([]File, error) {
	loader, err := interpreter(from)
	if err != nil {
		return nil, err
	}
	files := []File{{Path: path, From: from}}
	if loader == "" {
		return files, nil
	}
	libraries, err := Libraries(ctx, loader, from)
	if err != nil {
		return nil, err
	}
	return append(files, libraries...), nil
}

// Libraries are a dynamic loader and the shared libraries that it finds for a program or a library.
func Libraries(ctx context.Context, loader, object string) ([]File, error) {
	object, err := filepath.Abs(object)
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, loader, "--list", object).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s --list %s: %w: %s", loader, object, err, bytes.TrimSpace(out))
	}
	files := []File{{Path: loader, From: loader}}
	paths, err := resolved(string(out))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", object, err)
	}
	for _, p := range paths {
		if p != loader {
			files = append(files, File{Path: p, From: p})
		}
	}
	return files, nil
}

// interpreter is the dynamic loader that a program names; "" for a static one.
func interpreter(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, err)
	}
	defer func() { _ = f.Close() }() // only read
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text := make([]byte, p.Filesz)
		if _, err := p.ReadAt(text, 0); err != nil {
			return "", fmt.Errorf("%s: the name of its loader: %w", program, err)
		}
		return string(bytes.TrimRight(text, "\x00")), nil
	}
	return "", nil
}

// resolved are the paths in what a loader lists: "libc.so.6 => /lib/libc.so.6 (0x7f…)", "/lib64/ld.so (0x7f…)", and the
// kernel's own "linux-vdso.so.1 (0x7f…)", which has none.
func resolved(list string) ([]string, error) {
	var paths []string
	lines := bufio.NewScanner(strings.NewReader(list))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.Contains(line, "not found") {
			return nil, fmt.Errorf("%s: %w", line, os.ErrNotExist)
		}
		line, _, _ = strings.Cut(line, " (0x")
		if _, path, arrow := strings.Cut(line, " => "); arrow {
			line = path
		}
		if filepath.IsAbs(line) {
			paths = append(paths, filepath.Clean(line))
		}
	}
	return paths, lines.Err()
}
