package image

import (
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"strings"
)

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// descriptor points to a blob.
type descriptor struct {
	Type        string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	Version     int               `json:"schemaVersion"`
	Type        string            `json:"mediaType"`
	Config      descriptor        `json:"config"`
	Layers      []descriptor      `json:"layers"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type config struct {
	platform
	Config process `json:"config"`
	RootFS rootFS  `json:"rootfs"`
}

type process struct {
	User       string   `json:"User,omitempty"`
	Env        []string `json:"Env,omitempty"`
	Entrypoint []string `json:"Entrypoint,omitempty"`
	WorkingDir string   `json:"WorkingDir"`
}

type rootFS struct {
	Type   string   `json:"type"`
	Layers []string `json:"diff_ids"` // of the layers before they are compressed; ours are not
}

func (i Image) config(layer string) config {
	dir := i.Dir
	if dir == "" {
		dir = "/"
	}
	return config{
		platform: platform{runtime.GOARCH, "linux"},
		Config:   process{i.User, i.Env, i.Entrypoint, dir},
		RootFS:   rootFS{"layers", []string{layer}},
	}
}

func describe(kind string, text []byte) descriptor {
	sum := sha256.Sum256(text)
	return descriptor{Type: kind, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(text))}
}

// blobPath is where the layout keeps a blob.
func blobPath(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }
