package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// client talks JSON with one server. It needs no library of Kubernetes, so that the command that ends a cluster builds in no
// time; tests have client-go.
type client struct {
	http  *http.Client
	base  string
	token string
}

// refusal is an answer other than success.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.code, r.text) }

// newClient is the administrator, by a token: it shows no certificate, which would count before that.
func newClient(s settings) (*client, error) {
	h, err := trusting(s)
	if err != nil {
		return nil, err
	}
	return &client{h, s.server(), s.Tokens["admin"]}, nil
}

// newProber looks at what serves on the loopback interface, with the certificate that etcd wants.
func newProber(s settings) (*client, error) {
	own, err := tls.LoadX509KeyPair(s.pki("local.crt"), s.pki("local.key"))
	if err != nil {
		return nil, err
	}
	h, err := trusting(s, own)
	if err != nil {
		return nil, err
	}
	return &client{http: h}, nil
}

// trusting trusts the authority of a cluster.
func trusting(s settings, own ...tls.Certificate) (*http.Client, error) {
	ca, err := os.ReadFile(s.pki("ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s holds no certificate", s.pki("ca.crt"))
	}
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool, Certificates: own, MinVersion: tls.VersionTLS12},
		DialContext:         (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 32,
	}}, nil
}

// call sends an object, if there is one, and reads the answer into one, if that is wanted: *[]byte takes it as it is.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end, or the error is another one
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %w", method, path, &refusal{answer.StatusCode, message(text)})
	}
	switch out := out.(type) {
	case nil:
		return nil
	case *[]byte:
		*out = text
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// message is what a Status says, or the text itself.
func message(text []byte) string {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		return status.Message
	}
	return string(bytes.TrimSpace(text))
}

// create creates an object; one that is there already is as good.
func (c *client) create(ctx context.Context, path string, in, out any) error {
	err := c.call(ctx, http.MethodPost, path, in, out)
	var r *refusal
	if errors.As(err, &r) && r.code == http.StatusConflict {
		return nil
	}
	return err
}

// probe asks a component whether it serves.
func (c *Cluster) probe(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s := c.settings
	look := func(port int, path string) error {
		return c.prober.call(ctx, http.MethodGet, "https://"+at(loopback, port)+path, nil, nil)
	}
	switch name {
	case Etcd:
		return look(s.Ports.Etcd, "/health")
	case APIServer:
		return c.client.call(ctx, http.MethodGet, "/readyz", nil, nil)
	case ControllerManager:
		return look(s.Ports.ControllerManager, "/healthz")
	case Scheduler:
		return look(s.Ports.Scheduler, "/readyz")
	case Kwok:
		return c.prober.call(ctx, http.MethodGet, "http://"+at(loopback, s.Ports.Kwok)+"/healthz", nil, nil)
	case Containerd:
		return c.images(ctx, "list", "-q")
	case Kubelet:
		if err := c.prober.call(ctx, http.MethodGet, "http://"+at(loopback, s.Ports.KubeletHealth)+"/healthz", nil, nil); err != nil {
			return err
		}
		return c.nodeReady(ctx, NodeName)
	}
	return fmt.Errorf("there is no component %q", name)
}

// nodeReady says what keeps a node from being ready, nil when nothing does.
func (c *Cluster) nodeReady(ctx context.Context, name string) error {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := c.client.call(ctx, http.MethodGet, "/api/v1/nodes/"+name, nil, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" {
			if condition.Status == "True" {
				return nil
			}
			return fmt.Errorf("node %s: %s", name, condition.Message)
		}
	}
	return fmt.Errorf("node %s says nothing about itself yet", name)
}
