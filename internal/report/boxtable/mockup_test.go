package boxtable

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/unit"
)

// now is 14:32:07 of the mock-ups.
var now = time.Date(2026, 10, 30, 14, 32, 7, 0, time.UTC)

func at(width int) View { return View{Now: now, Screen: report.Screen{Width: width}} }

func colour(width int) View {
	v := at(width)
	v.Screen.Color = true
	return v
}

func ptr[T any](v T) *T { return &v }

func gibs(v float64) unit.Bytes { return unit.Bytes(v * float64(unit.GiB)) }

// running makes a job of the mock-ups.
func running(id box.ID, name, user string, class box.Class, priority int, on []int, rate, predicted, floor, reserved, peak float64, run time.Duration, command ...string) box.Job {
	return box.Job{ID: id, Name: name, User: user, State: box.Running, Class: class, Priority: priority, On: on, GPUs: len(on), Rate: &rate,
		Predicted: &box.Prediction{Rate: predicted, Low: predicted - 0.05, High: predicted + 0.04, Basis: "catalogue"}, Floor: floor,
		Reserved: gibs(reserved), Peak: gibs(peak), Run: run.Seconds(), Command: command, Started: ptr(now.Add(-run))}
}

func waiting(id box.ID, name, user string, floor, reserved, peak float64, since time.Duration, reason box.Reason, command ...string) box.Job {
	return box.Job{ID: id, Name: name, User: user, State: box.Waiting, Class: box.Burstable, Priority: 10, GPUs: 1, Floor: floor,
		Reserved: gibs(reserved), Peak: gibs(peak), Submitted: now.Add(-since), Reason: &reason, Command: command}
}

const h, m, s = time.Hour, time.Minute, time.Second

// box1 is the machine of the mock-ups.
func box1() ([]box.Job, []box.GPU, box.Status) {
	jobs := []box.Job{
		running(41, "resnet50", "ana", box.Guaranteed, 50, []int{0}, 0.98, 0.97, 0.95, 9, 13, 2*h+14*m, "python", "main.py"),
		running(42, "lm-small", "ben", box.BestEffort, 0, []int{0}, 0.41, 0.38, 0.2, 3.5, 6, h+50*m, "/usr/bin/python3.12", "src/lm.py"),
		running(43, "bert-ft", "ana", box.Burstable, 10, []int{1}, 0.93, 0.91, 0.85, 6, 11.5, 52*m, "ft.py"),
		running(44, "gnn-tune", "carl", box.Burstable, 10, []int{1}, 0.89, 0.87, 0.8, 5.5, 12, 47*m, "train.py"),
		running(45, "vit-l", "dana", box.Burstable, 10, []int{2, 3}, 0.97, 0.95, 0.9, 14, 18, 3*h+5*m, "/opt/bin/torchrun", "--nproc_per_node", "2"),
		running(46, "probe", "ben", box.Burstable, 10, []int{3}, 0.84, 0.85, 0.8, 2, 4, 31*m, "bash", "probe.py"),
		waiting(47, "vit-sweep", "carl", 0.9, 8, 12, 12*m, box.Reason{Code: plan.MemoryOverflow, GPU: ptr(1), Got: 0.31, Limit: 0.05}, "sweep.py"),
		waiting(48, "llm-eval", "dana", 0.9, 6, 9, 3*m, box.Reason{Code: plan.Priority, After: 47}, "eval.py"),
	}
	jobs[0].TokenWait, jobs[1].TokenWait = ptr(0.1), ptr(11.8)
	jobs[5].Operation = &box.Operation{Verb: box.Moved, Time: now.Add(-8*m - 57*s), From: []int{1}, To: []int{3},
		Text: "43 was below its floor.\n43 beside 44,46: observed 78 %, predicted 88 %, floor 85 %, 3 windows (60 s).\n46 was cheapest: 1.2 GiB, pause 9 s. Pair banned to 15:23."}
	gpu := func(i int, uuid string, temperature, busy, reserved, used, stall float64, overruns int, residents []box.ID, token box.ID) box.GPU {
		return box.GPU{Index: i, UUID: uuid + "-0000-0000-0000-000000000000", Model: "NVIDIA A10", Health: "ok", Busy: &busy, Temperature: &temperature, Usable: gibs(22.5),
			Reserved: gibs(reserved), InUse: gibs(used), Residents: residents, Token: token, Stall: stall, Overruns: overruns}
	}
	gpus := []box.GPU{
		gpu(0, "GPU-5e1f09c2", 61, 0.97, 12.5, 16.1, 0, 3, []box.ID{41, 42}, 41),
		gpu(1, "GPU-8a44d01b", 58, 0.94, 11.5, 19.8, 36, 0, []box.ID{43, 44}, 44),
		gpu(2, "GPU-c07e2b93", 49, 0.71, 14, 16.9, 0, 0, []box.ID{45}, 45),
		gpu(3, "GPU-f3d95a10", 55, 0.83, 16, 18.4, 0, 1, []box.ID{45, 46}, 46),
	}
	status := box.Status{Host: "box1", GPUs: 4, InUse: 4, Workers: 7, Running: 6, Waiting: 2, Version: "0.5", PID: 812, State: "/var/lib/weft",
		Since: now.Add(-74 * h), Page: "http://127.0.0.1:7070/"}
	return jobs, gpus, status
}

func written(t *testing.T, write func(b *strings.Builder) error) string {
	t.Helper()
	var b strings.Builder
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func same(t *testing.T, want, got string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(strings.TrimPrefix(want, "\n"), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestJobs(t *testing.T) {
	jobs, _, _ := box1()
	same(t, `
ID  NAME       USER  STATE    GPU  RATE  FLOOR   TIME  REASON
41  resnet50   ana   running  0    98 %   95 %  2h14m
42  lm-small   ben   running  0    41 %   20 %  1h50m
43  bert-ft    ana   running  1    93 %   85 %    52m
44  gnn-tune   carl  running  1    89 %   80 %    47m
45  vit-l      dana  running  2,3  97 %   90 %  3h05m
46  probe      ben   running  3    84 %   80 %    31m  Moved 14:23
47  vit-sweep  carl  waiting  -       -   90 %    12m  MemoryOverflow gpu1
48  llm-eval   dana  waiting  -       -   90 %     3m  Priority after 47
`, written(t, func(b *strings.Builder) error { return at(80).Jobs(b, jobs) }))
	same(t, `
ID  NAME       USER  STATE    CLASS       PRIO  GPU  RATE  PRED  FLOOR    MEM GiB   TIME  REASON               COMMAND
41  resnet50   ana   running  guaranteed    50  0    98 %  97 %   95 %   9.0/13.0  2h14m                       main.py
42  lm-small   ben   running  besteffort     0  0    41 %  38 %   20 %    3.5/6.0  1h50m                       lm.py
43  bert-ft    ana   running  burstable     10  1    93 %  91 %   85 %   6.0/11.5    52m                       ft.py
44  gnn-tune   carl  running  burstable     10  1    89 %  87 %   80 %   5.5/12.0    47m                       train.py
45  vit-l      dana  running  burstable     10  2,3  97 %  95 %   90 %  14.0/18.0  3h05m                       torchrun~
46  probe      ben   running  burstable     10  3    84 %  85 %   80 %    2.0/4.0    31m  Moved 14:23          probe.py
47  vit-sweep  carl  waiting  burstable     10  -       -     -   90 %   8.0/12.0    12m  MemoryOverflow gpu1  sweep.py
48  llm-eval   dana  waiting  burstable     10  -       -     -   90 %    6.0/9.0     3m  Priority after 47    eval.py
`, written(t, func(b *strings.Builder) error { return at(120).Jobs(b, jobs) }))
}

func TestGPUs(t *testing.T) {
	_, gpus, _ := box1()
	same(t, `
GPU   HEALTH  BUSY  RESERVED  IN USE  USABLE GiB  RESIDENTS  TOKEN
gpu0  ok      97 %      12.5    16.1        22.5  41,42      41
gpu1  ok      94 %      11.5    19.8        22.5  43,44      44
gpu2  ok      71 %      14.0    16.9        22.5  45         45
gpu3  ok      83 %      16.0    18.4        22.5  45,46      46
`, written(t, func(b *strings.Builder) error { return at(80).GPUs(b, gpus) }))
	same(t, `
GPU   MODEL  UUID          HEALTH  TEMP  BUSY  RESERVED  IN USE  USABLE GiB  STALLS  OVERRUNS  XID  RESIDENTS  TOKEN
gpu0  A10    GPU-5e1f09c2  ok      61 C  97 %      12.5    16.1        22.5     0 s         3    -  41,42      41
gpu1  A10    GPU-8a44d01b  ok      58 C  94 %      11.5    19.8        22.5    36 s         0    -  43,44      44
gpu2  A10    GPU-c07e2b93  ok      49 C  71 %      14.0    16.9        22.5     0 s         0    -  45         45
gpu3  A10    GPU-f3d95a10  ok      55 C  83 %      16.0    18.4        22.5     0 s         1    -  45,46      46
`, written(t, func(b *strings.Builder) error { return at(120).GPUs(b, gpus) }))
	gpus[2].Health, gpus[2].XID, gpus[2].Busy, gpus[2].Token, gpus[2].Residents = "unhealthy", ptr(uint64(79)), nil, 0, nil
	gpus[3].Health = "drained"
	gpus[1].Foreign = []box.Foreign{{PID: 991, User: "eve", Name: "blender\x1b", Bytes: gibs(3)}}
	same(t, "GPU   HEALTH     BUSY  RESERVED  IN USE  USABLE GiB  RESIDENTS  TOKEN\n"+
		"gpu2  \x1b[31munhealthy!\x1b[0m    -      14.0    16.9        22.5  -          -\n"+
		"gpu3  \x1b[33mdrained\x1b[0m    83 %      16.0    18.4        22.5  45,46      46\n",
		written(t, func(b *strings.Builder) error { return colour(80).GPUs(b, gpus[2:]) }))
	if got := written(t, func(b *strings.Builder) error { return at(80).GPUs(b, gpus[1:2]) }); !strings.HasSuffix(got, "note: gpu1: blender? (pid 991, user eve) is of no job and holds 3.0 GiB\n") {
		t.Error(got)
	}
}

func refusal(gpu int, code plan.Code, text string, beside ...box.ID) box.Refusal {
	return box.Refusal{GPU: gpu, Beside: beside, Reason: box.Reason{Code: code, Text: text}}
}

func TestExplain(t *testing.T) {
	jobs, _, _ := box1()
	f := box.Explanation{Job: jobs[6], Refusals: []box.Refusal{
		refusal(1, plan.MemoryOverflow, "P(over 22.5 GiB) 0.31, allowed 0.05", 43, 44),
		refusal(2, plan.FloorResident, "45 keeps at least 82 %, floor 90 %", 45),
		refusal(3, plan.MemoryReserved, "16.0 + 8.0 = 24.0 GiB, usable 22.5", 45, 46),
		refusal(0, plan.ClassConflict, "guaranteed 41 has its one besteffort", 41, 42),
	}, Opens: "Starts when 44 ends (about 11m), or now with a peak <= 9.4 GiB (what-if, gpu1)"}
	f.Refusals[0].Nearest = true
	g := box.Explanation{Job: jobs[2], Held: 51 * 60, Lost: &box.Loss{Token: 0.05, Stall: 0.01, Contention: 0.01}}
	g.Job.Beside, g.Job.Windows = []box.ID{44}, 156
	h := box.Explanation{Job: jobs[5], Held: 31 * 60}
	h.Job.Beside, h.Job.Predicted = []box.ID{45}, nil
	explained := func(v View, e *box.Explanation) string {
		return written(t, func(b *strings.Builder) error { return v.Explain(b, e) })
	}
	for _, v := range []View{at(80), at(120)} {
		same(t, `
Job 47 vit-sweep (carl) waits 12m: MemoryOverflow. 0 of 4 GPUs hold all floors.
Asks burstable, floor 90 %, reserved 8.0 GiB, peak 12.0 GiB
GPU   BESIDE  REFUSED BY      NUMBERS
gpu1  43,44   MemoryOverflow  P(over 22.5 GiB) 0.31, allowed 0.05  nearest
gpu2  45      FloorResident   45 keeps at least 82 %, floor 90 %
gpu3  45,46   MemoryReserved  16.0 + 8.0 = 24.0 GiB, usable 22.5
gpu0  41,42   ClassConflict   guaranteed 41 has its one besteffort
Starts when 44 ends (about 11m), or now with a peak <= 9.4 GiB (what-if, gpu1)
`, explained(v, &f))
		same(t, `
Job 43 bert-ft on gpu1 beside 44: 93 %, floor 85 %, held 51 of 52 min.
Predicted 91 % (86 to 95, catalogue), observed 93 %, 156 windows.
Lost 7 %: token wait 5, stalls 1, contention 1.
`, explained(v, &g))
		// What is now stands under what was done.
		same(t, `
Job 46 probe moved gpu1 -> gpu3 at 14:23:10: 43 was below its floor.
43 beside 44,46: observed 78 %, predicted 88 %, floor 85 %, 3 windows (60 s).
46 was cheapest: 1.2 GiB, pause 9 s. Pair banned to 15:23.
Job 46 probe on gpu3 beside 45: 84 %, floor 80 %, held 31 of 31 min.
`, explained(v, &h))
	}
}

func TestTop(t *testing.T) {
	jobs, gpus, status := box1()
	top := Top{View: at(80), Status: status, Jobs: jobs[:2], GPUs: gpus[:1], Chosen: 42}
	same(t, `
box1  4 GPUs  7 workers  below floor 0  waiting 2                  14:32:07
gpu0 busy 97 % mem [##############r###f.......] 16.1/22.5 GiB  token 41
  41 guaranteed  98 % [===================|]  floor 95 %  wait  0.1 ms  resnet50
> 42 besteffort  41 % [====|===            ]  floor 20 %  wait 11.8 ms  lm-small

q quit  arrows choose  Enter explain  s sort: id  u mine  / filter  p pause
`, top.Frame())
	top = Top{View: at(120), Status: status, Jobs: jobs, GPUs: gpus, Order: ByRate, Filter: "4", Detail: "Job 47 waits.\n"}
	same(t, `
box1  4 GPUs  7 workers  below floor 0  waiting 2                                                          14:32:07
gpu0 busy 97 % mem [######################r#####f...........] 16.1/22.5 GiB  token 41
  42 besteffort  41 % [========|=======                        ]  floor 20 %  wait 11.8 ms  pred 38 %   lm-small
  41 guaranteed  98 % [======================================| ]  floor 95 %  wait  0.1 ms  pred 97 %   resnet50
gpu1 busy 94 % mem [####################r##############f....] 19.8/22.5 GiB  token 44
  44 burstable   89 % [================================|==     ]  floor 80 %  wait     -    pred 87 %   gnn-tune
  43 burstable   93 % [==================================|==   ]  floor 85 %  wait     -    pred 91 %   bert-ft
gpu2 busy 71 % mem [########################r#####f.........] 16.9/22.5 GiB  token 45
  45 burstable   97 % [====================================|=  ]  floor 90 %  wait     -    pred 95 %   vit-l
gpu3 busy 83 % mem [############################r###f.......] 18.4/22.5 GiB  token 46
  46 burstable   84 % [================================|       ]  floor 80 %  wait     -    pred 85 %   probe
  45 burstable   97 % [====================================|=  ]  floor 90 %  wait     -    pred 95 %   vit-l
waiting 2
  47 burstable  waits     12m  carl  MemoryOverflow gpu1  vit-sweep
  48 burstable  waits      3m  dana  Priority after 47  llm-eval

Job 47 waits.

q quit  arrows choose  Enter explain  s sort: rate  u mine  / filter  p pause
only with 4
`, top.Frame())
}
