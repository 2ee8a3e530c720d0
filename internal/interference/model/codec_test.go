package model

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"weft.dev/weft/internal/interference"
)

const megabyte = 1 << 20

func TestModelRoundTripsAndIsSmall(t *testing.T) {
	m := shipped(t)
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(text) >= megabyte {
		t.Errorf("the built-in model is %d bytes", len(text))
	}
	again, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	second, err := again.Encode()
	if err != nil || !bytes.Equal(text, second) {
		t.Errorf("a model read back differs (%v)", err)
	}
}

func TestModelsOfOtherVersionsAreRefused(t *testing.T) {
	_, err := Decode([]byte(`{"version":3,"anything":{"new":true}}`))
	var version *VersionError
	if !errors.As(err, &version) || err.Error() != "model version 3, known 1; retrain" {
		t.Errorf("%v", err)
	}
	for _, text := range []string{"", "{}", "[]", "null", `{"version":null}`, `{"version":"1"}`, `{"version":1}`, `{"version":1,"surprise":2}`} {
		if _, err := Decode([]byte(text)); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// Trees that loop, reach outside or have no value are refused, not followed.
func TestBrokenTreesAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Model){
		"cycle":    func(m *Model) { m.Mean.Trees[0].Left[1] = 1 },
		"back":     func(m *Model) { m.Mean.Trees[0].Right[2] = 0; m.Mean.Trees[0].Left[2] = 1 },
		"outside":  func(m *Model) { m.Mean.Trees[0].Left[0] = len(m.Mean.Trees[0].Value) },
		"feature":  func(m *Model) { m.Mean.Trees[0].Feature[0] = len(m.Names) },
		"lists":    func(m *Model) { m.Mean.Trees[0].Missing = nil },
		"empty":    func(m *Model) { m.Mean.Trees[0] = Tree{} },
		"features": func(m *Model) { m.Names[0] = "other" },
		"bounds":   func(m *Model) { m.Known = m.Known[1:] },
		"order":    func(m *Model) { m.New[0].Knots = []Knot{{0.5, 0.5}, {0.4, 0.6}} },
		"high":     func(m *Model) { m.New[0].High = -0.1 },
		"coverage": func(m *Model) { m.Coverage = 1.5 },
	} {
		m := shipped(t)
		spoil(m)
		text, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(text); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Whatever text is accepted predicts without fault.
func FuzzDecode(f *testing.F) {
	m := shipped(f)
	m.Mean.Trees, m.Jobs = m.Mean.Trees[:1], m.Jobs[:2] // small seeds mutate faster
	text, err := m.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":1,"layout":{"references":[],"gpus":[]}}`))
	f.Add([]byte(strings.Replace(string(text), `"l":[`, `"l":[7,`, 1)))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Decode(text)
		if err != nil {
			return
		}
		p := m.Predictor([]Entry{{GPU: "p100", Config: newcomer, Job: Job{Rate: 1}}}, []Probe{{GPU: "p100", A: newcomer, B: resnet, RateA: 0.5, RateB: 0.5}})
		for _, partner := range []interference.Config{resnet, newcomer} {
			got := p.Predict(Query{GPU: "p100", Self: newcomer, Partner: partner})
			if !(got.Low <= got.Mean && got.Mean <= got.High) {
				t.Fatalf("%+v", got)
			}
		}
	})
}
