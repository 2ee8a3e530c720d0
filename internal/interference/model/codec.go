package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// VersionError is a model file of a version that this program does not know.
type VersionError struct{ Version int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("model version %d, known %d; retrain", e.Version, Version)
}

// Encode writes a model as JSON.
func (m *Model) Encode() ([]byte, error) {
	text, err := json.Marshal(m)
	return append(text, '\n'), err
}

// Decode reads a model and holds it to what Predict relies on: whatever it accepts predicts without fault. A file of
// another version is a *VersionError.
func Decode(text []byte) (*Model, error) {
	var head struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("not a model: %w", err)
	}
	if head.Version == nil {
		return nil, fmt.Errorf("not a model: no version")
	}
	if *head.Version != Version {
		return nil, &VersionError{*head.Version}
	}
	m := &Model{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(m); err != nil {
		return nil, fmt.Errorf("not a model: %w", err)
	}
	return m, m.check()
}

func (m *Model) check() error {
	var names []string
	for _, f := range m.Layout.Features() {
		names = append(names, f.Name)
	}
	switch {
	case !slices.Equal(names, m.Names):
		return fmt.Errorf("model: its features are not this program's; retrain")
	case len(m.Ranges) != len(names):
		return fmt.Errorf("model: %d ranges for %d features", len(m.Ranges), len(names))
	case !(m.Coverage > 0.5 && m.Coverage < 1):
		return fmt.Errorf("model: coverage %v is outside (0.5, 1)", m.Coverage)
	case !(m.Kappa >= 0):
		return fmt.Errorf("model: kappa %v is negative", m.Kappa)
	case len(m.Layout.References) > maxReferences:
		return fmt.Errorf("model: more than %d reference GPU models", maxReferences)
	}
	for i := range m.Mean.Trees {
		if err := m.Mean.Trees[i].check(len(names)); err != nil {
			return fmt.Errorf("model: tree %d: %w", i, err)
		}
	}
	for _, bounds := range append(m.Probed, m.Known, m.New) {
		if len(bounds) != len(m.Layout.GPUs) {
			return fmt.Errorf("model: %d bounds for %d GPU models", len(bounds), len(m.Layout.GPUs))
		}
		for _, b := range bounds {
			if err := b.check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// check holds a tree to its form: equal lengths, features that exist, and children after their parent, so that every
// path ends.
func (t *Tree) check(features int) error {
	n := len(t.Value)
	if n == 0 || len(t.Feature) != n || len(t.Threshold) != n || len(t.Left) != n || len(t.Right) != n || len(t.Missing) != n {
		return fmt.Errorf("its lists differ in length")
	}
	for i := range n {
		l, r := t.Left[i], t.Right[i]
		switch {
		case math.IsNaN(t.Value[i]) || math.IsInf(t.Value[i], 0):
			return fmt.Errorf("node %d has no value", i)
		case l == 0 && r == 0:
		case l <= i || r <= i || l >= n || r >= n:
			return fmt.Errorf("node %d has the children %d and %d of %d", i, l, r, n)
		case t.Feature[i] < 0 || t.Feature[i] >= features:
			return fmt.Errorf("node %d asks for feature %d of %d", i, t.Feature[i], features)
		}
	}
	return nil
}

// check holds a bound to be a rising step function of rates.
func (b *Bound) check() error {
	if !(b.High >= 0 && b.High <= 1) {
		return fmt.Errorf("model: bound: %v above the mean is no share", b.High)
	}
	for i, k := range b.Knots {
		if !(k.Low >= 0 && k.Low <= 1) || i > 0 && !(k.Score >= b.Knots[i-1].Score && k.Low >= b.Knots[i-1].Low) {
			return fmt.Errorf("model: bound: step %d is not in order", i)
		}
	}
	return nil
}
