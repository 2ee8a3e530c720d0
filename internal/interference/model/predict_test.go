package model

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"weft.dev/weft/internal/interference"
)

func shipped(t testing.TB) *Model {
	t.Helper()
	m, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func config(model, batch string) interference.Config {
	return interference.Config{Model: model, Batch: batch}
}

var (
	resnet      = config("ResNet-18", "16")
	transformer = config("Transformer", "64")
	newcomer    = config("newcomer", "8")
)

// 1,079 measured pairs are in the built-in model; one of them must come out near its measured rates, 0.80 and 0.72.
func TestDefaultModelKnowsThePublicPairs(t *testing.T) {
	p := shipped(t).Predictor(nil, nil)
	for _, x := range []struct {
		self, partner interference.Config
		want          float64
	}{{resnet, transformer, 0.8044}, {transformer, resnet, 0.7235}} {
		got := p.Predict(Query{GPU: "p100", Self: x.self, Partner: x.partner})
		if got.Basis != Known || math.Abs(got.Mean-x.want) > 0.1 || !(got.Low <= x.want && x.want <= got.High) || got.Notes != nil {
			t.Errorf("%v beside %v: %+v, measured %v", x.self, x.partner, got, x.want)
		}
	}
}

func TestBasisWeakensWithWhatIsUnknown(t *testing.T) {
	m := shipped(t)
	e := Entry{Source: "mine", GPU: "p100", Config: newcomer, Job: Job{Rate: 20}}
	odd := Entry{Source: "mine", GPU: "p100", Config: config("odd", "8"), Job: Job{Rate: 1e9}}
	p := m.Predictor([]Entry{e, odd}, nil)
	for _, x := range []struct {
		name  string
		q     Query
		basis Basis
		note  string
	}{
		{"known", Query{GPU: "p100", Self: resnet, Partner: transformer}, Known, ""},
		{"known, doubted", Query{GPU: "p100", Self: resnet, Partner: transformer, Doubted: true}, New, ""},
		{"new", Query{GPU: "p100", Self: newcomer, Partner: transformer}, New, ""},
		{"new, doubted", Query{GPU: "p100", Self: newcomer, Partner: transformer, Doubted: true}, Prior, ""},
		{"beside a new one", Query{GPU: "p100", Self: transformer, Partner: newcomer}, New, ""},
		{"far", Query{GPU: "p100", Self: odd.Config, Partner: transformer}, Prior, "self_samples is far outside"},
		{"unknown", Query{GPU: "p100", Self: config("ghost", ""), Partner: transformer}, Prior, "nothing is known of ghost on p100: prior used"},
		{"GPU", Query{GPU: "b200", Self: resnet, Partner: transformer}, Prior, "GPU B200 never seen: prior used"},
		{"source", Query{Source: "mine", GPU: "p100", Self: newcomer, Partner: newcomer}, Prior, `source "mine" never seen`},
	} {
		got := p.Predict(x.q)
		if got.Basis != x.basis || !strings.Contains(strings.Join(got.Notes, ";"), x.note) || (x.note == "") != (got.Notes == nil) {
			t.Errorf("%s: %+v, want %s, note %q", x.name, got, x.basis, x.note)
		}
	}
}

// Whatever is asked, rates are rates, the mean lies between the bounds, and a weaker basis does not give a safer floor.
func TestPredictionsAreOrdered(t *testing.T) {
	m := shipped(t)
	var all []interference.Config
	for _, e := range m.Jobs {
		all = append(all, e.Config)
	}
	all = append(all, newcomer)
	rapid.Check(t, func(t *rapid.T) {
		job := Job{Rate: rapid.Float64Range(0, 1e4).Draw(t, "rate"), GPUUtil: rapid.Float64Range(0, 1).Draw(t, "util")}
		p := m.Predictor([]Entry{{Source: "x", GPU: "v100", Config: newcomer, Job: job}}, nil)
		q := Query{GPU: rapid.SampledFrom([]string{"k80", "p100", "v100", "h100"}).Draw(t, "gpu"),
			Self: rapid.SampledFrom(all).Draw(t, "self"), Partner: rapid.SampledFrom(all).Draw(t, "partner")}
		got := p.Predict(q)
		if !(got.Low >= 0 && got.Low <= got.Mean && got.Mean <= got.High && got.High <= 1) {
			t.Fatalf("%+v: %+v", q, got)
		}
		q.Doubted = true
		if worse := p.Predict(q); worse.Low > got.Low {
			t.Fatalf("%+v: doubt raised the floor from %v to %v", q, got.Low, worse.Low)
		}
	})
}

// A probe that agrees with the prediction changes no mean; one that is worse lowers the job's other pairs, and two say
// more than one.
func TestProbesCorrectANewJob(t *testing.T) {
	m := shipped(t)
	entries := []Entry{{Source: "x", GPU: "p100", Config: newcomer, Job: Job{Rate: 20}}}
	mean := func(probes ...Probe) Prediction {
		return m.Predictor(entries, probes).Predict(Query{GPU: "p100", Self: newcomer, Partner: transformer})
	}
	before := mean()
	plain := m.Predictor(entries, nil)
	at := func(partner interference.Config, shift float64) Probe {
		self := plain.Predict(Query{GPU: "p100", Self: newcomer, Partner: partner}).Mean
		other := plain.Predict(Query{GPU: "p100", Self: partner, Partner: newcomer}).Mean
		return Probe{GPU: "p100", A: newcomer, B: partner, RateA: self + shift, RateB: other}
	}
	same := mean(at(resnet, 0))
	if math.Abs(same.Mean-before.Mean) > 1e-9 || same.Basis != Probed {
		t.Errorf("a probe as predicted: %+v, before %+v", same, before)
	}
	one := mean(at(resnet, -0.2))
	two := mean(at(resnet, -0.2), at(config("LM", "20"), -0.2))
	if !(two.Mean < one.Mean && one.Mean < before.Mean-0.1) {
		t.Errorf("means %v, %v after one, %v after two bad probes", before.Mean, one.Mean, two.Mean)
	}
}

func TestDriversNameWhatMoved(t *testing.T) {
	p := shipped(t).Predictor(nil, nil)
	list := p.Drivers(Query{GPU: "p100", Self: resnet, Partner: transformer})
	if len(list) < 3 || !slices.IsSortedFunc(list, func(a, b Driver) int {
		if math.Abs(a.By) >= math.Abs(b.By) {
			return -1
		}
		return 1
	}) {
		t.Errorf("drivers %+v", list)
	}
	if none := p.Drivers(Query{GPU: "p100", Self: newcomer, Partner: transformer}); none != nil {
		t.Errorf("drivers of an unknown job: %+v", none)
	}
}

func TestTablesKeepMeasuredPairsAndAdmitOnTheBound(t *testing.T) {
	p := shipped(t).Predictor(nil, nil)
	measured := interference.NewTable()
	measured.Add(resnet, transformer, 0.99, 0.98)
	got := p.Tables([]interference.Config{resnet, transformer, newcomer}, "", "p100", measured)
	for _, table := range []*interference.Table{got.Mean, got.Safe} {
		if table.Len() != 3 || table.Config(0) != resnet || table.Config(2) != newcomer {
			t.Fatalf("configurations are not in order")
		}
		if rate := 1 / (1 + table.Added(0, 1)); math.Abs(rate-0.99) > 1e-9 {
			t.Errorf("a measured rate of 0.99 became %v", rate)
		}
	}
	for i := range 3 {
		for l := range 3 {
			if got.Safe.Added(i, l) < got.Mean.Added(i, l) {
				t.Errorf("the bound of %d beside %d is above its mean", i, l)
			}
		}
	}
	if got.Basis[Known] != 2 || got.Basis[Prior] != 3 || len(got.Notes) != 1 {
		t.Errorf("bases %v, notes %v", got.Basis, got.Notes)
	}
}

func BenchmarkTables(b *testing.B) {
	m := shipped(b)
	p := m.Predictor(nil, nil)
	var configs []interference.Config
	for _, e := range m.Jobs {
		if e.GPU == "p100" {
			configs = append(configs, e.Config)
		}
	}
	for b.Loop() {
		p.Tables(configs, "", "p100", nil)
	}
}
