package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// install copies what containers load into a folder of the node that is named after its content: a later weft changes nothing of
// what running containers have. emulated says whether the emulated driver is part of it.
func install(from, to string, emulated bool) (*kit, error) {
	names := []string{"libweft.so"}
	if emulated {
		entries, err := os.ReadDir(filepath.Join(from, "emu"))
		if err != nil {
			return nil, fmt.Errorf("the emulated driver: %w", err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "lib") {
				names = append(names, filepath.Join("emu", e.Name()))
			}
		}
	}
	files := map[string][]byte{"ld.so.preload": []byte(inLibrary + "\n")}
	sum := sha256.New()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return nil, fmt.Errorf("what containers load: %w", err)
		}
		files[name] = text
		sum.Write(fmt.Appendf(nil, "%s %d\n", name, len(text)))
		sum.Write(text)
	}
	dir := filepath.Join(to, hex.EncodeToString(sum.Sum(nil)[:8]))
	if err := place(dir, files); err != nil {
		return nil, fmt.Errorf("what containers load: %w", err)
	}
	k := &kit{library: filepath.Join(dir, "libweft.so"), preload: filepath.Join(dir, "ld.so.preload")}
	if emulated {
		k.emulated = filepath.Join(dir, "emu")
	}
	return k, nil
}

// place makes a folder with files, whole or not at all. One of its name is as it is to be.
func place(dir string, files map[string][]byte) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	next, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(next) }() // it is there only if something went wrong
	for name, text := range files {
		path := filepath.Join(next, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o755)); err != nil {
			return err
		}
	}
	if err := os.Chmod(next, 0o755); err != nil {
		return err
	}
	return os.Rename(next, dir)
}

// removeOthers removes what earlier versions installed. What running containers have mounted stays theirs.
func (k *kit) removeOthers() error {
	dir := filepath.Dir(k.library)
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil {
		return err
	}
	var faults []error
	for _, e := range entries {
		if path := filepath.Join(filepath.Dir(dir), e.Name()); path != dir {
			faults = append(faults, os.RemoveAll(path))
		}
	}
	return errors.Join(faults...)
}
