package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"weft.dev/weft/test/cluster"
	"weft.dev/weft/test/cluster/image"
	"weft.dev/weft/test/suite"
)

// The emulated GPUs of the node.
const (
	gpus      = 4
	gpuMemory = "16GiB"
)

// Images that the tests make.
const (
	weftImage  = "weft.local/weft:test"
	trainImage = "weft.local/train:test"
)

// site is a cluster with emulated GPUs, and with weft unless a test took it away.
type site struct {
	cluster *cluster.Cluster
	api     kubernetes.Interface
	broker  *exec.Cmd
	said    suite.Log
}

// here is the one of this test binary, made by who first asks for it.
var here struct {
	once sync.Once
	site *site
	err  error
}

// at is the site, with weft in it.
func at(t *testing.T) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED under -short: brings up a cluster")
	}
	here.once.Do(func() { here.site, here.err = open() })
	cluster.SkipOr(t, here.err)
	return here.site
}

// away ends the site of this test binary.
func away() error {
	if here.site == nil {
		return nil
	}
	return here.site.close()
}

func open() (s *site, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	s = &site{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.cluster, err = cluster.Up(ctx, cluster.Options{Wait: time.Minute}); err != nil {
		return s, err
	}
	if err := s.emulate(ctx); err != nil {
		return s, err
	}
	for _, make := range []func(context.Context) (image.Image, error){weft, train} {
		i, err := make(ctx)
		if err != nil {
			return s, err
		}
		if err := s.cluster.ImportImage(ctx, i); err != nil {
			return s, err
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.cluster.Kubeconfig())
	if err != nil {
		return s, err
	}
	config.QPS, config.Burst = 200, 400
	if s.api, err = kubernetes.NewForConfig(config); err != nil {
		return s, err
	}
	return s, s.install(ctx)
}

func (s *site) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var faults []error
	if s.cluster != nil {
		faults = append(faults, s.cluster.Close(ctx))
	}
	if s.broker != nil {
		_ = s.broker.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = s.broker.Wait()                          // its end says nothing
	}
	return errors.Join(append(faults, os.RemoveAll(socketFolder))...)
}

// socketFolder is where the socket of the emulated GPUs is, on the node and in containers.
const socketFolder = "/run/weft-emulated"

func socket() string { return filepath.Join(socketFolder, "gpu.sock") }

// emulate starts the GPUs of the node: a process of the node, as real GPUs are no part of a cluster either.
func (s *site) emulate(ctx context.Context) error {
	if err := os.MkdirAll(socketFolder, 0o755); err != nil {
		return err
	}
	s.broker = exec.Command(built.Weft, "emugpu", "serve", "--gpus", strconv.Itoa(gpus), "--memory", gpuMemory, "--socket", socket())
	s.broker.Stdout, s.broker.Stderr = &s.said, &s.said
	if err := s.broker.Start(); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(socket()); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no emulated GPUs: %s", s.said.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// weft is the image of controller and agent.
func weft(ctx context.Context) (image.Image, error) {
	files, err := image.Program(ctx, built.Weft, "/usr/bin/weft")
	if err != nil {
		return image.Image{}, err
	}
	libraries, err := folder(built.Lib, "/usr/lib/weft")
	return image.Image{Name: weftImage, Files: append(files, libraries...), Entrypoint: []string{"/usr/bin/weft"}, Env: []string{"WEFT_LIB=/usr/lib/weft"}}, err
}

// train is the image of training jobs. They bring nothing of weft: the driver and libweft.so come from the node.
func train(ctx context.Context) (image.Image, error) {
	files, err := image.Program(ctx, filepath.Join(built.Lib, "weft-train"), "/usr/bin/weft-train")
	if err != nil {
		return image.Image{}, err
	}
	return image.Image{Name: trainImage, Files: files, Entrypoint: []string{"/usr/bin/weft-train"}}, nil
}

// folder is a folder in an image.
func folder(from, to string) ([]image.File, error) {
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

// kubectl runs kubectl, with standard input, and returns what it prints.
func (s *site) kubectl(ctx context.Context, input string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.cluster.Binaries().Path("kubectl"), append([]string{"--kubeconfig", s.cluster.Kubeconfig()}, arguments...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, out)
	}
	return string(out), nil
}
