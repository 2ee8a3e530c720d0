package trace

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/unit"
)

// faultOf is the first fault of a table reader that must refuse its input.
func faultOf(t testing.TB, err error) *Error {
	t.Helper()
	var e Errors
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want faults", err)
	}
	return e[0]
}

const openbText = `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
w-a,8000,1024,1,250,,BE,Succeeded,5,105,15
w-b,1000,1024,4,1000,T4|A10,Guaranteed,Failed,0,50,0
w-c,1000,1024,0,0,,LS,Running,0,50,0
w-d,1000,1024,1,1000,,LS,Pending,0,,
w-e,1000,1024,1,1000,,LS,Running,0,,1
w-f,1000,1024,1,0,,LS,Running,0,9,1
w-g,1000,1024,1,1000,,LS,Running,0,9,10
w-h,1000,1024,1,1000,,Burstable,Running,3,9,9
w-a,1000,1024,1,1000,,LS,Running,0,9,1
`

func TestOpenb(t *testing.T) {
	trace := readText(t, "openb", openbText, Options{})
	want := []cluster.Job{
		{ID: "w-b", Workers: 4, Share: 1000, Models: []string{"T4", "A10"}, Floor: 0.9, Class: cluster.Guaranteed, CPU: 1000,
			HostMemory: unit.GiB, Duration: 50 * time.Second},
		{ID: "w-h", Workers: 1, Share: 1000, Floor: 0.9, CPU: 1000, HostMemory: unit.GiB, Submit: unit.Seconds(3)},
		{ID: "w-a", Workers: 1, Share: 250, Floor: 0.9, Class: cluster.BestEffort, CPU: 8000, HostMemory: unit.GiB, Submit: unit.Seconds(5),
			Duration: 90 * time.Second},
	}
	if d := cmp.Diff(want, trace.Jobs); d != "" {
		t.Errorf("jobs (-want +got):\n%s", d)
	}
	wantCounts(t, trace.Excluded, map[string]int{reasonNoGPU: 1, reasonNoStart: 1, reasonRunning: 1, reasonReversed: 1,
		reasonRepeated: 1, "gpu_milli outside 1 to 1000": 1})
	if _, err := ReadOpenbPods("in", strings.NewReader(openbText)); faultOf(t, err).Line != 7 {
		t.Errorf("a share of 0 in a fill-up gave %v", err)
	}
}

const phillyLog = `[
 {"status": "Pass", "vc": "x", "jobid": "j1", "user": "u", "submitted_time": "2017-08-01 10:00:00", "attempts": [
   {"start_time": "2017-08-01 10:01:00", "end_time": "2017-08-01 10:11:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]},
   {"start_time": "2017-08-01 10:20:00 PDT", "end_time": "2017-08-01 11:20:00 PDT", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]},
   {"start_time": "2017-08-01 12:00:00", "end_time": null, "detail": []}]},
 {"status": "Running", "vc": "x", "jobid": "j2", "submitted_time": "2017-08-01 10:00:00", "attempts": []},
 {"status": "Killed", "vc": "x", "jobid": "j3", "submitted_time": "2017-08-01 10:00:00", "attempts": []},
 {"status": "Killed", "vc": "x", "jobid": "j1", "submitted_time": "2017-08-01 10:00:00", "attempts": [
   {"start_time": "2017-08-01 10:01:00", "end_time": "2017-08-01 10:11:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
 {"status": "Pass", "vc": "x", "jobid": "j4", "submitted_time": "None", "attempts": [
   {"start_time": "2017-08-01 10:01:00", "end_time": "2017-08-01 10:11:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
 {"status": "Pass", "vc": "y", "jobid": "j5", "submitted_time": "2017-08-01 09:00:00", "attempts": [
   {"start_time": "2017-08-01 10:01:00", "end_time": "2017-08-01 10:11:00", "detail": []}]}
]
`

func TestPhillyLog(t *testing.T) {
	trace := readText(t, "philly", "\xef\xbb\xbf"+phillyLog, Options{})
	if len(trace.Jobs) != 1 || trace.Jobs[0].Workers != 3 || trace.Jobs[0].Duration != time.Hour || trace.Jobs[0].User != "u" || trace.Jobs[0].VC != "x" {
		t.Errorf("jobs %+v", trace.Jobs)
	}
	wantCounts(t, trace.Excluded, map[string]int{reasonRunning: 1, reasonNoStart: 1, reasonRepeated: 1, reasonNoTime: 1,
		reasonBroken: 1, reasonAttempt: 2})
	for _, c := range []struct {
		text, code string
		line       int
	}{
		{phillyLog[:len(phillyLog)-3], "truncated", 13},
		{"[", "truncated", 1},
		{"[\n{\"jobid\": \"a\"},\n{\"vc\": \"v\",\n\"jobid\": 3}]", "wrong_type", 4},
		{"[\n{\"jobid\": \"a\"},\n{,}]", "syntax", 3},
		{"[\n\n{\"jobid\": \"" + strings.Repeat("x", maxPhillyJob+1<<20) + "\"}]", "long_row", 3},
	} {
		if e := faults(t, "philly", c.text, Options{})[0]; e.Code != c.code || e.Line != c.line {
			t.Errorf("%.40q: %+v, want %s on line %d", c.text, e, c.code, c.line)
		}
	}
}

func TestGavelRates(t *testing.T) {
	const table = "source,gpu_type,placement,scale_factor,model,steps_per_sec\n" +
		"gavel_simulation,v100,consolidated,1,LM (batch size 5),2\n" +
		"gavel_simulation,v100,unconsolidated,1,LM (batch size 5),1\n" +
		"gavel_simulation,p100,consolidated,1,LM (batch size 5),0.5\n" +
		"gavel_simulation,v100,consolidated,2,A3C,0\n" +
		"gavel_simulation,v100,consolidated,1,A3C,4\n"
	const text = "job_type,scale_factor,total_steps,arrival_time\nA3C,1,100,0\nLM (batch size 5),1,100,7\nA3C,2,100,8\n"
	for gpu, want := range map[string]time.Duration{"": 50 * time.Second, "V100": 50 * time.Second, "p100": 200 * time.Second} {
		rates, err := ReadRates("rates.csv", strings.NewReader(table), RateSource{GPU: gpu})
		if err != nil {
			t.Fatal(err)
		}
		trace := readText(t, "gavel", text, Options{Rates: rates})
		last := trace.Jobs[len(trace.Jobs)-1]
		if last.Model != "LM" || last.Batch != "5" || last.Duration != want {
			t.Errorf("on %q: %+v, want %v", gpu, last, want)
		}
		if gpu != "p100" {
			wantCounts(t, trace.Excluded, map[string]int{"no measured rate on 2 GPUs": 1})
			if first := trace.Jobs[0]; first.Model != "A3C" || first.Batch != "" {
				t.Errorf("A3C is %+v", first)
			}
		}
	}
	if e := faults(t, "gavel", text, Options{})[0]; e.Code != "no_rates" || !strings.Contains(e.Fix, "--rates FILE") {
		t.Errorf("without rates: %+v", e)
	}
	_, err := ReadRates("rates.csv", strings.NewReader(table), RateSource{GPU: "h100"})
	if e := faultOf(t, err); e.Code != "no_rates" || !strings.Contains(e.Fix, "gavel_simulation on p100") {
		t.Errorf("rates of h100: %+v", e)
	}
	_, err = ReadRates("rates.csv", strings.NewReader(table+"gavel_simulation,v100,consolidated,1,A3C,5\n"), RateSource{})
	if e := faultOf(t, err); e.Code != "double_row" || e.Line != 7 {
		t.Errorf("two rates: %+v", e)
	}
}

func TestPairs(t *testing.T) {
	const header = "source,gpu_type,job_a,batch_a,job_b,batch_b,norm_a,norm_b\n"
	pairs, err := ReadPairs("in", strings.NewReader(header+"s,g,A3C,,LM,5,1.25,0.5\n"))
	if d := cmp.Diff([]Pair{{Source: "s", GPU: "g", JobA: "A3C", JobB: "LM", BatchB: "5", NormA: 1.25, NormB: 0.5}}, pairs); err != nil || d != "" {
		t.Errorf("%v, pairs (-want +got):\n%s", err, d)
	}
	for text, code := range map[string]string{
		"s,g,a,,b,,0,1\n": "out_of_range", "s,g,a,,b,,-1,1\n": "out_of_range", "s,g,a,,b,,NaN,1\n": "not_a_number", "s,g,a,,b,,,1\n": "empty_cell",
		"s,g,,,b,,1,1\n": "empty_cell", "s,g,a,,b,,1e9,1\n": "out_of_range",
	} {
		if _, err := ReadPairs("in", strings.NewReader(header+text)); faultOf(t, err).Code != code || faultOf(t, err).Line != 2 {
			t.Errorf("%q: %v, want %s", text, err, code)
		}
	}
}

func TestModelMap(t *testing.T) {
	m, err := ReadModelMap("map.csv", strings.NewReader("pattern,model,batch,profile\nbert-*,BERT,32,valley\nre:(?i)resnet,ResNet-50,,\nbert-large,never,,\nunused?,x,,\n"))
	if err != nil {
		t.Fatal(err)
	}
	const text = "id,name,profile\n1,bert-large,\n2,my ResNet run,\n3,llm,\n4,bert-x,own\nbert-5,,\n"
	trace := readText(t, "csv", text, Options{Models: m})
	var got []string
	for _, j := range trace.Jobs {
		got = append(got, j.Model+":"+j.Batch+":"+j.Memory.Profile)
	}
	if d := cmp.Diff([]string{"BERT:32:valley", "ResNet-50::", "::", "BERT:32:own", "BERT:32:valley"}, got); d != "" {
		t.Errorf("models (-want +got):\n%s", d)
	}
	want := []string{"map.csv: 4 of 5 jobs without a model matched a pattern",
		"map.csv: patterns that matched no job: bert-large (line 4), unused? (line 5)",
		"1 of 5 jobs name no model: not shared; add a \"model\" column or a map with --models"}
	if d := cmp.Diff(want, trace.Notes); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
	for _, row := range []string{"[a-,m", "re:(,m", ",m", "a,"} {
		if _, err := ReadModelMap("map.csv", strings.NewReader("pattern,model\nok*,m\n"+row+"\n")); faultOf(t, err).Line != 3 {
			t.Errorf("%q: %v, want a fault on line 3", row, err)
		}
	}
}

func TestCluster(t *testing.T) {
	read := func(text string, gpus int) (cluster.Cluster, error) {
		return ReadCluster("in", strings.NewReader(text), gpus)
	}
	got, err := read("node,gpus,gpu_model,gpu_memory_mib,cpu_milli,memory_mib,vc,count\nbox,4,A10,23028,64000,1024,v,2\nlogin,0,,,,,,\n", 0)
	box := cluster.Node{Name: "box-0", VC: "v", GPUModel: "A10", GPUs: 4, GPUMemory: 23028 * unit.MiB, CPU: 64000, Memory: unit.GiB}
	second := box
	second.Name = "box-1"
	if d := cmp.Diff(cluster.Cluster{Nodes: []cluster.Node{box, second, {Name: "login"}}}, got); err != nil || d != "" {
		t.Errorf("%v, cluster (-want +got):\n%s", err, d)
	}
	philly, err := read("vc,node num\nx,2\ny,1\n", 4)
	if d := cmp.Diff([]cluster.Node{{Name: "x-0", VC: "x", GPUs: 4}, {Name: "x-1", VC: "x", GPUs: 4}, {Name: "y-0", VC: "y", GPUs: 4}}, philly.Nodes); err != nil || d != "" {
		t.Errorf("%v, philly (-want +got):\n%s", err, d)
	}
	tiresias, err := read("num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n2,3,4,40,256", 0)
	if err != nil || len(tiresias.Nodes) != 6 || tiresias.GPUs() != 24 || tiresias.Nodes[5].Name != "switch-1-2" || tiresias.Nodes[5].CPU != 40_000 || tiresias.Nodes[0].Memory != 256*unit.GiB {
		t.Errorf("%v, tiresias %+v", err, tiresias)
	}
	for text, code := range map[string]string{
		"": "empty", "node,gpus\na,0\n": "no_gpu", "node,gpus\na,1\na,2\n": "double_id", "node,gpus\na,-1\n": "out_of_range",
		"node,gpus\na,\n": "empty_cell", "node,gpus,count\na,1,2000000\n": "out_of_range", "node,gpus,gpu_memory_mib\na,1,0\n": "out_of_range",
		"host,cards\na,1\n": "missing_column", "node,gpus,colour\na,1,red\n": "unknown_column",
		"num_switch,num_node_p_switch,num_gpu_p_node\n1000000,1000000,1\n": "out_of_range",
		"node,gpus\na,1\na-0,1\na,1\n":                                     "double_id",
	} {
		if _, err := read(text, 0); faultOf(t, err).Code != code {
			t.Errorf("%q: %v, want %s", text, err, code)
		}
	}
}
