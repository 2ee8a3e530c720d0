// Package site puts weft into a cluster of test/cluster as a user does, with the chart, and emulated GPUs under its node. Tests and the
// demonstration stand on it.
package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"weft.dev/weft/test/cluster"
	"weft.dev/weft/test/cluster/image"
)

// Images that a site has.
const (
	WeftImage  = "weft.local/weft:test"  // controller and agent
	TrainImage = "weft.local/train:test" // weft-train and weft-probe, and nothing of weft: driver and libweft.so come from the node
)

// Namespace is where weft is.
const Namespace = "weft-system"

// Options of a site.
type Options struct {
	Weft   string   // the program
	Lib    string   // folder of what runs inside of containers
	Source string   // root of the checkout
	GPUs   int      // to emulate
	Memory string   // of each: "16GiB"
	Agent  []string // further arguments of the agent
	Detach bool     // the emulated GPUs outlive this process, until a minute after weft's agent has gone
}

// Site is a cluster with weft.
type Site struct {
	*cluster.Cluster
	o      Options
	folder string // of the socket of the emulated GPUs, on the node and in containers
	broker *exec.Cmd
	ended  chan struct{} // closed with the broker's end
}

// Socket is that of the emulated GPUs.
func (s *Site) Socket() string { return filepath.Join(s.folder, "gpu.sock") }

// Open makes the images, starts the GPUs and installs weft.
func Open(ctx context.Context, c *cluster.Cluster, o Options) (s *Site, err error) {
	s = &Site{Cluster: c, o: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.emulate(ctx); err != nil {
		return s, err
	}
	for _, make := range []func(context.Context) (image.Image, error){s.weft, s.train} {
		i, err := make(ctx)
		if err != nil {
			return s, err
		}
		if err := c.ImportImage(ctx, i); err != nil {
			return s, err
		}
	}
	return s, s.Install(ctx)
}

// Close ends the emulated GPUs, unless they are detached. The cluster stays.
func (s *Site) Close() error {
	if s.broker == nil || s.o.Detach {
		return nil
	}
	_ = s.broker.Process.Signal(syscall.SIGTERM) // it may have ended
	<-s.ended
	return os.RemoveAll(s.folder)
}

// emulate starts the GPUs: a process of the node, as real GPUs are no part of a cluster either.
func (s *Site) emulate(ctx context.Context) error {
	var err error
	if s.folder, err = os.MkdirTemp("/run", "weft-emulated-"); err != nil {
		return err
	}
	if err := os.Chmod(s.folder, 0o755); err != nil {
		return err
	}
	arguments := []string{"emugpu", "serve", "--gpus", strconv.Itoa(s.o.GPUs), "--memory", s.o.Memory, "--socket", s.Socket()}
	if s.o.Detach {
		arguments = append(arguments, "--linger", "1m")
	}
	log, err := os.Create(filepath.Join(s.folder, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own
	s.broker = exec.Command(s.o.Weft, arguments...)
	s.broker.Stdout, s.broker.Stderr = log, log
	s.broker.SysProcAttr = &syscall.SysProcAttr{Setsid: s.o.Detach}
	if err := s.broker.Start(); err != nil {
		return err
	}
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		_ = s.broker.Wait() // its log says more
	}()
	for {
		if _, err := os.Stat(s.Socket()); err == nil {
			return nil
		}
		select {
		case <-s.ended:
			text, _ := os.ReadFile(log.Name()) // shown as the fault
			return fmt.Errorf("the emulated GPUs ended: %s", text)
		case <-ctx.Done():
			text, _ := os.ReadFile(log.Name()) // shown beside the fault
			return fmt.Errorf("no emulated GPUs: %w: %s", context.Cause(ctx), text)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Publish gives the node weft's image under another name, as another release.
func (s *Site) Publish(ctx context.Context, name string) error {
	i, err := s.weft(ctx)
	if err != nil {
		return err
	}
	i.Name = name
	return s.ImportImage(ctx, i)
}

func (s *Site) weft(ctx context.Context) (image.Image, error) {
	files, err := image.Program(ctx, s.o.Weft, "/usr/bin/weft")
	if err != nil {
		return image.Image{}, err
	}
	libraries, err := tree(s.o.Lib, "/usr/lib/weft")
	return image.Image{Name: WeftImage, Files: append(files, libraries...), Entrypoint: []string{"/usr/bin/weft"}, Env: []string{"WEFT_LIB=/usr/lib/weft"}}, err
}

func (s *Site) train(ctx context.Context) (image.Image, error) {
	files, err := image.Program(ctx, filepath.Join(s.o.Lib, "weft-train"), "/usr/bin/weft-train")
	files = append(files, image.File{Path: "/usr/bin/weft-probe", From: filepath.Join(s.o.Lib, "weft-probe")}) // linked to the same libraries
	return image.Image{Name: TrainImage, Files: files, Entrypoint: []string{"/usr/bin/weft-train"}}, err
}

// tree is a folder in an image.
func tree(from, to string) ([]image.File, error) {
	var files []image.File
	err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".o") {
			return err
		}
		relative, err := filepath.Rel(from, path)
		files = append(files, image.File{Path: filepath.Join(to, relative), From: path})
		return err
	})
	return files, err
}
