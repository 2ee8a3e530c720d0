package trace

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"weft.dev/weft/internal/cluster"
)

// checkRead reads any text in a format: it gives a valid trace in which every row is a job or counted, or faults.
func checkRead(t fatal, format, text string, o Options) {
	s, err := NewStream(format, "in", strings.NewReader(text), o)
	if err != nil {
		checkFaults(t, err)
		return
	}
	s.whole = true
	var jobs []cluster.Job
	for j, err := range s.Jobs(context.Background()) {
		if err != nil {
			checkFaults(t, err)
			return
		}
		jobs = append(jobs, j)
	}
	excluded := 0
	for _, x := range s.Excluded {
		excluded += x.Rows
	}
	if s.Rows+s.extra != len(jobs)+excluded+s.merged {
		t.Fatalf("%d rows and %d more in them are %d jobs, %d excluded, %d merged", s.Rows, s.extra, len(jobs), excluded, s.merged)
	}
	trace, err := Read(context.Background(), format, "in", strings.NewReader(text), o)
	if err != nil || len(trace.Jobs) != len(jobs) {
		t.Fatalf("streamed %d jobs, read %v: %v", len(jobs), trace, err)
	}
	checkJobs(t, trace)
}

// checkFaults holds that a refusal names its place and can be shown, or is an error of the inflater.
func checkFaults(t fatal, err error) {
	var faults Errors
	if !errors.As(err, &faults) {
		if !strings.Contains(err.Error(), "in") {
			t.Fatalf("error %v does not name the input", err)
		}
		return
	}
	if len(faults) == 0 || len(faults) > maxErrors {
		t.Fatalf("%d faults", len(faults))
	}
	for _, e := range faults {
		if e.Code == "" || e.Message == "" || e.File != "in" || len(e.Row) > maxQuote+1 || strings.ContainsRune(e.Error()+e.Row+e.Value, '\x1b') {
			t.Fatalf("fault %+v", e)
		}
	}
}

func fuzzFormat(f *testing.F, format string, seeds ...string) {
	f.Helper()
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) { checkRead(t, format, text, everything) })
}

func FuzzCSV(f *testing.F) {
	fuzzFormat(f, "csv", "id,model\na,LM\n", "id,model,submit_s,duration_s,floor,workers,memory_mib,persistent_mib,class,gpu_util,gpu_milli\na,LM,1,2,0.5,3,8,4,besteffort,50,500\n",
		"\xef\xbb\xbfid,model\r\n\"a\"\"b\",\"x,y\"\r\n", "id,model,floor\na,b,NaN\n", "id,id\n", "id,model\na,\"b\n")
}

func FuzzSacct(f *testing.F) {
	text, err := os.ReadFile("testdata/sacct.txt")
	if err != nil {
		f.Fatal(err)
	}
	header, _, _ := strings.Cut(string(text), "\n")
	for line := range strings.Lines(string(text)) {
		f.Add(header + "\n" + line)
	}
	fuzzFormat(f, "sacct", string(text), "JobID@@State@@Submit@@Start@@Elapsed@@AllocGRES\n1@@FAILED@@1746345660@@1746345660@@1@@gpu:a:2(S:0,1)\n")
}

func FuzzOpenb(f *testing.F)  { fuzzFormat(f, "openb", openbText) }
func FuzzPhilly(f *testing.F) { fuzzFormat(f, "philly", phillyText) }
func FuzzPhillyLog(f *testing.F) {
	fuzzFormat(f, "philly", phillyLog, "[]", "[{}]", "[1]", "[{\"attempts\":[{}]}]")
}

func FuzzITP(f *testing.F) {
	fuzzFormat(f, "itp", "cluster,submission_time,duration,num_gpu\nc,1,2,3\n",
		"job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration\n0,0,12,vgg16,7,256,1,9,9,12\n")
}

func FuzzGavel(f *testing.F) {
	fuzzFormat(f, "gavel", "vc,arrival_time,job_type,scale_factor,total_steps\nv,0,LM (batch size 5),1,9\n",
		"job_type,total_steps,scale_factor,duration,arrival_time\nA3C,9,1,5,0\n")
}

func FuzzTiresias(f *testing.F) {
	fuzzFormat(f, "tiresias", "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,1,0,606,vgg19,164,30\n")
}

// The smaller tables: a valid result or faults, never a panic.
func FuzzTables(f *testing.F) {
	for _, s := range []string{"node,gpus,count\na,4,2\n", "vc,node num\nx,3\n", "pattern,model\na*,m\nre:x,m\n",
		"job_a,job_b,norm_a,norm_b\na,b,0.5,1.2\n", "source,gpu_type,placement,scale_factor,model,steps_per_sec\ngavel_simulation,v100,consolidated,1,A3C,2\n",
		"num_switch,num_node_p_switch,num_gpu_p_node\n1,2,3\n", "sn,cpu_milli,memory_mib,gpu,model\nn,1,2,3,T4\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ReadCluster("in", strings.NewReader(text), 0); err != nil {
			checkFaults(t, err)
		} else if c.GPUs() < 1 {
			t.Fatalf("cluster without a GPU: %+v", c)
		}
		if pairs, err := ReadPairs("in", strings.NewReader(text)); err != nil {
			checkFaults(t, err)
		} else {
			for _, p := range pairs {
				if !(p.NormA > 0 && p.NormB > 0) || p.JobA == "" || p.JobB == "" {
					t.Fatalf("pair %+v", p)
				}
			}
		}
		if rates, err := ReadRates("in", strings.NewReader(text), RateSource{}); err != nil {
			checkFaults(t, err)
		} else {
			for k, v := range rates.perSecond {
				if !(v > 0) || k.workers < 1 {
					t.Fatalf("rate %g of %+v", v, k)
				}
			}
		}
		if m, err := ReadModelMap("in", strings.NewReader(text)); err != nil {
			checkFaults(t, err)
		} else {
			j := cluster.Job{Name: text}
			m.apply(&j)
		}
		if pods, err := ReadOpenbPods("in", strings.NewReader(text)); err != nil {
			checkFaults(t, err)
		} else {
			for _, p := range pods {
				if p.Workers < 0 || p.Share < 0 || p.Share > 1000 {
					t.Fatalf("pod %+v", p)
				}
			}
		}
	})
}
