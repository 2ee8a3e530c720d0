package kube

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"weft.dev/weft/test/cluster"
	"weft.dev/weft/test/kube/site"
)

// gpus is how many are emulated.
const gpus = 4

// bed is a cluster with emulated GPUs, and with weft unless a test took it away.
type bed struct {
	*site.Site
	api kubernetes.Interface
}

// here is the one of this test binary, made by who first asks for it.
var here struct {
	once    sync.Once
	cluster *cluster.Cluster
	bed     *bed
	err     error
}

// at is the bed, with weft in it.
func at(t *testing.T) *bed {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED under -short: brings up a cluster")
	}
	here.once.Do(func() { here.bed, here.err = open() })
	cluster.SkipOr(t, here.err)
	return here.bed
}

func open() (*bed, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var err error
	if here.cluster, err = cluster.Up(ctx, cluster.Options{Wait: 5 * time.Minute}); err != nil {
		return nil, err
	}
	b := &bed{}
	if b.Site, err = site.Open(ctx, here.cluster, site.Options{Weft: built.Weft, Lib: built.Lib, Source: filepath.Join("..", ".."), GPUs: gpus, Memory: "16GiB", Agent: []string{"--window=2s"}}); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", b.Kubeconfig())
	if err != nil {
		return b, err
	}
	config.QPS, config.Burst = 200, 400
	b.api, err = kubernetes.NewForConfig(config)
	return b, err
}

// away ends what this test binary made.
func away() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience+time.Minute)
	defer cancel()
	var faults []error
	if here.bed != nil && here.bed.api != nil {
		waiting, done := context.WithTimeout(ctx, patience) // the cluster is to end in any case
		faults = append(faults, here.bed.ended(waiting))
		done()
	}
	if here.cluster != nil {
		faults = append(faults, here.cluster.Close(ctx))
	}
	if here.bed != nil {
		faults = append(faults, here.bed.Close())
	}
	return errors.Join(faults...)
}
