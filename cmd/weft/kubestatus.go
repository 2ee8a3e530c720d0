package main

import (
	"context"
	"errors"

	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/kube/look/reader"
	"weft.dev/weft/internal/web/client"
)

// ofCluster says how a cluster is.
func (c *statusCommand) ofCluster(ctx context.Context, s *session) error {
	r, err := c.open(c.JSON)
	if err != nil {
		return err
	}
	l, err := c.see(ctx, s, r, c.JSON)
	if err != nil {
		return err
	}
	status := l.Status()
	if c.JSON {
		s.writeJSON(struct {
			Schema  int    `json:"schema"`
			Server  string `json:"server"`
			Context string `json:"context"`
			look.Status
		}{client.Schema, r.Server, r.Context, status})
		return nil
	}
	return s.kubeView().Status(s.stdout, &status, placeOf(r))
}

// placeOf is a cluster as people know it: "cluster https://10.0.0.1:6443, context lab".
func placeOf(r *reader.Reader) string {
	if r.Context == "" {
		return "cluster " + r.Server
	}
	return "cluster " + r.Server + ", context " + r.Context
}

// orCluster is the answer where no daemon of this machine gave one: that of a cluster where there is access to one. Where that fails, too,
// both are told.
func (c *statusCommand) orCluster(ctx context.Context, s *session, err error) error {
	var absent *failure
	if !errors.As(err, &absent) || absent.code != exitUnreachable || c.State != "" || !reader.Found() {
		return err
	}
	failed := c.ofCluster(ctx, s)
	if told := inputIn(failed); told != nil {
		told.faults = append(absent.faults, told.faults...)
	}
	return failed
}
