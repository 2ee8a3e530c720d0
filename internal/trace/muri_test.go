package trace

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/shared"
	"weft.dev/weft/internal/unit"
)

const muriHeader = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time," +
	"resource_time_0,resource_time_1,resource_time_2,priority\n"

func TestReadMuri(t *testing.T) {
	text := "\ufeff" + muriHeader + "7,16,1500,100,gpt2,4,43000,91,437,0.6,419,49,1\r\n8,1,0,2,dqn,,,,490,446,8,0,0\r\n"
	got, err := ReadMuri("t.csv", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []MuriJob{
		{Line: 2, ID: "7", Model: "gpt2", Batch: "4", GPUs: 16, SubmitMS: 1500, Iterations: 100, IterationMS: 437,
			DurationMS: 43000, StageMS: [3]float64{0.6, 419, 49}, Opportunistic: true},
		{Line: 3, ID: "8", Model: "dqn", GPUs: 1, Iterations: 2, IterationMS: 490, DurationMS: 980,
			StageMS: [3]float64{446, 8, 0}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	jobs, err := readMuri("t.csv", strings.NewReader(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantJob := cluster.Job{ID: "7", Model: "gpt2", Batch: "4", Workers: 16, Share: unit.WholeGPU, Class: cluster.BestEffort,
		Submit: unit.Seconds(1.5), Duration: seconds(43)}
	if d := cmp.Diff(wantJob, jobs.Jobs[0]); d != "" || jobs.Jobs[1].Class != cluster.Guaranteed {
		t.Errorf("job (-want +got)\n%s; second class %v, want guaranteed", d, jobs.Jobs[1].Class)
	}
}

// firstFault runs a reader and gives its first fault.
func firstFault(t *testing.T, err error) *Error {
	t.Helper()
	var faults Errors
	if !errors.As(err, &faults) || len(faults) == 0 {
		t.Fatalf("error %v, want Errors", err)
	}
	return faults[0]
}

func TestReadMuriFaults(t *testing.T) {
	good := "7,16,1500,100,gpt2,4,43000,91,437,0.6,419,49,1"
	cells := strings.Split(good, ",")
	columns := strings.Split(strings.TrimSpace(muriHeader), ",")
	for _, c := range []struct{ column, value, code string }{
		{"num_gpu", "0", "out_of_range"},
		{"num_gpu", "-4", "out_of_range"},
		{"num_gpu", "99999999", "out_of_range"},
		{"num_gpu", "1.5", "not_a_number"},
		{"submit_time", "-1", "out_of_range"},
		{"submit_time", "NaN", "not_a_number"},
		{"submit_time", "1e300", "out_of_range"},
		{"iterations", "0", "out_of_range"},
		{"iterations", "1000000000000", "out_of_range"}, // of 437 ms each: 13,000 years
		{"iteration_time", "0", "out_of_range"},
		{"iteration_time", "Inf", "out_of_range"},
		{"iteration_time", "", "empty_cell"},
		{"resource_time_1", "-0.5", "out_of_range"},
		{"priority", "2", "out_of_range"},
		{"model_name", " ", "empty_cell"},
		{"job_id", "", "empty_cell"},
		{"duration", "0", "out_of_range"},
	} {
		row := append([]string(nil), cells...)
		for i, name := range columns {
			if name == c.column {
				row[i] = c.value
			}
		}
		_, err := ReadMuri("t.csv", strings.NewReader(muriHeader+"1,1,0,1,dqn,,,,1,1,1,1,0\n"+strings.Join(row, ",")))
		e := firstFault(t, err)
		if e.File != "t.csv" || e.Line != 3 || e.Column != c.column || e.Code != c.code || e.Value != strings.TrimSpace(c.value) {
			t.Errorf("%s=%q: fault %+v, want %s on line 3", c.column, c.value, e, c.code)
		}
	}
	_, err := ReadMuri("t.csv", strings.NewReader(muriHeader+good+"\n"+good+"\n"))
	if e := firstFault(t, err); e.Code != "double_id" || e.Line != 3 || !strings.Contains(e.Message, "line 2") {
		t.Errorf("doubled id: fault %+v", e)
	}
	_, err = ReadMuri("t.csv", strings.NewReader(strings.Replace(muriHeader, "num_gpu,", "", 1)))
	if e := firstFault(t, err); e.Code != "missing_column" || e.Column != "num_gpu" {
		t.Errorf("missing column: fault %+v", e)
	}
}

func TestReadMuriTraces(t *testing.T) {
	for name, want := range map[string]int{"trace1": 1494, "trace2": 5755, "trace3": 992, "trace4": 2638} {
		path := shared.Data(t, "muri/"+name+".csv")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		jobs, err := ReadMuri(path, bytes.NewReader(text))
		if err != nil || len(jobs) != want {
			t.Errorf("%s: %d jobs, error %v; want %d", name, len(jobs), err, want)
		}
	}
}

// FuzzMuri: whatever the text, the reader gives faults that name the file, or jobs within bounds.
func FuzzMuri(f *testing.F) {
	f.Add([]byte(muriHeader + "7,16,1500,100,gpt2,4,43000,91,437,0.6,419,49,1\n"))
	f.Add([]byte(muriHeader + "7,0,-1,NaN,,4,43000,91,1e999,0.6,419,49,1\n\"\n"))
	f.Add([]byte("job_id,job_id\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		jobs, err := ReadMuri("fuzz.csv", bytes.NewReader(text))
		checkRefusal(t, err)
		ids := map[string]bool{}
		for _, j := range jobs {
			ok := j.ID != "" && !ids[j.ID] && j.Model != "" && j.GPUs >= 1 && j.GPUs <= maxWorkers && j.Iterations >= 1 &&
				j.IterationMS > 0 && j.SubmitMS >= 0 && j.DurationMS > 0 && j.DurationMS <= muriMaxMS &&
				j.Iterations*j.IterationMS <= muriMaxMS && min(j.StageMS[0], j.StageMS[1], j.StageMS[2]) >= 0
			if !ok {
				t.Fatalf("job %+v", j)
			}
			ids[j.ID] = true
		}
	})
}

// checkRefusal holds what every fault of a text promises.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var faults Errors
	if !errors.As(err, &faults) || len(faults) == 0 {
		t.Fatalf("error %v is not Errors", err)
	}
	for _, e := range faults {
		if e.File != "fuzz.csv" || e.Message == "" || e.Code == "" {
			t.Fatalf("fault %+v", e)
		}
	}
}
