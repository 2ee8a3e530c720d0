package kubetable

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/look"
	"weft.dev/weft/internal/kube/removal"
	"weft.dev/weft/internal/plan"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/internal/unit"
)

var now = time.Date(2026, 11, 30, 14, 32, 7, 0, time.UTC)

func at(width int, colour bool) View {
	return View{Now: now, Screen: report.Screen{Width: width, Color: colour}}
}

func ptr[T any](v T) *T { return &v }

func same(t *testing.T, want string, write func(b *strings.Builder) error) {
	t.Helper()
	var b strings.Builder
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(strings.TrimPrefix(want, "\n"), "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Error(diff)
	}
}

// waiting is a Pod that 25 GPUs refuse.
func waiting() look.Explanation {
	e := look.Explanation{Pod: look.Pod{Namespace: "ml", Name: "vit-sweep", Mode: look.Shared, State: look.Waiting, Class: "burstable", Floor: ptr(0.9), GPUs: 2,
		Reserved: 8 * unit.GiB, Peak: 12 * unit.GiB, Since: now.Add(-12 * time.Minute)}, Told: "MemoryOverflow: 0 of 25 GPUs", Promised: ptr(now.Add(9 * time.Minute)),
		Ahead: []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}, Opens: "Starts when ml/b ends"}
	for i := range 25 {
		e.Refusals = append(e.Refusals, look.Refusal{GPU: fmt.Sprintf("n/gpu%d", i), Beside: []string{"ml/b"}, Code: plan.MemoryOverflow, Text: "P(over 22.5Gi) 0.31, allowed 0.05", Nearest: i == 0})
	}
	e.Refusals[1].Code, e.Refusals[1].Text, e.Refusals[1].Beside = "", "", nil
	return e
}

func TestExplainWait(t *testing.T) {
	e := waiting()
	lines := ""
	for i := 2; i < 20; i++ {
		lines += fmt.Sprintf("n/gpu%-2d  ml/b    MemoryOverflow  P(over 22.5Gi) 0.31, allowed 0.05\n", i)
	}
	same(t, `
Pod ml/vit-sweep waits 12m: MemoryOverflow: 0 of 25 GPUs.
Asks 2 GPUs, burstable, floor 90 %, reserved 8Gi, peak 12Gi
GPU      BESIDE  REFUSED BY      NUMBERS
n/gpu0   ml/b    MemoryOverflow  P(over 22.5Gi) 0.31, allowed 0.05  nearest
n/gpu1   -       -               would take it
`+lines+`and 5 GPUs more; --json has all
Ahead of it: a, b, c, d, e, f, g, h and 2 more
Starts at 14:41 at the latest
Starts when ml/b ends
`, func(b *strings.Builder) error { return at(80, false).Explain(b, &e) })
	e.Never, e.Gang, e.Peak, e.Promised, e.Opens, e.Told = true, []string{"a", "b"}, 0, nil, "", "TooLarge: asks 2 GPUs, the cluster has 1; ask for fewer"
	same(t, `
Pod ml/vit-sweep waits 12m: TooLarge: asks 2 GPUs, the cluster has 1; ask for fewer.
Asks 2 Pods at once, 2 GPUs, burstable, floor 90 %, memory unknown: it shares with nobody
`, func(b *strings.Builder) error { return at(80, false).Explain(b, &e) })
	e.Promised = ptr(now.Add(48 * time.Hour))
	var b strings.Builder
	if err := (View{Now: now, Zone: time.FixedZone("east", 3600)}).Explain(&b, &e); err != nil || !strings.Contains(b.String(), "Starts at Dec 2 15:32 at the latest") {
		t.Error(b.String(), err)
	}
}

func TestExplainPlace(t *testing.T) {
	place := func(gpu string, names ...string) look.Place {
		p := look.Place{GPU: gpu, Reserved: 11 * unit.GiB, Usable: 24 * unit.GiB}
		for _, name := range names {
			p.Residents = append(p.Residents, look.Resident{Name: name, Class: "besteffort", Floor: 0.2, Reserved: unit.GiB, Peak: 2 * unit.GiB})
		}
		return p
	}
	e := look.Explanation{Pod: look.Pod{Namespace: "ml", Name: "bert", Mode: look.Shared, State: look.Running, Floor: ptr(0.85), Rate: ptr(0.81), Below: true, Peak: unit.GiB},
		Places: []look.Place{place("n/gpu0", "ml/x"), place("n/gpu1", "ml/x", "ml/y\x1b")}, Range: &look.Range{Rate: 0.91, Low: 0.86, High: 0.95, Basis: "catalogue"},
		Condition: []look.Condition{{Type: kube.ConditionFloorHeld, Status: "False", Message: "0.81 < 0.85", Since: now.Add(-time.Minute)},
			{Type: kube.ConditionPlaced, Status: "True", Since: now}}}
	same(t, "Pod ml/bert runs on n/gpu0, n/gpu1 beside ml/x, ml/y?: \x1b[31m81 %!\x1b[0m, floor 85 %, predicted 91 % (86 to 95, catalogue).\n"+`Reserved 0, peak 1Gi
GPU     BESIDE  CLASS       FLOOR  RESERVED  PEAK GiB
n/gpu0  ml/x    besteffort   20 %       1.0       2.0
n/gpu1  ml/x    besteffort   20 %       1.0       2.0
n/gpu1  ml/y?   besteffort   20 %       1.0       2.0
n/gpu0: 11Gi of 24Gi reserved
n/gpu1: 11Gi of 24Gi reserved
`+"\x1b[31mBelow its floor!\x1b[0m for 1m: 0.81 < 0.85\n", func(b *strings.Builder) error { return at(80, true).Explain(b, &e) })
	e = look.Explanation{Pod: look.Pod{Namespace: "a", Name: "b", Mode: look.Native, State: look.Running}}
	same(t, "Pod a/b is running; weft serves none of its GPUs.\n", func(b *strings.Builder) error { return at(80, false).Explain(b, &e) })
}

func TestStatus(t *testing.T) {
	s := look.Status{Nodes: 4, Serving: 4, GPUs: 32, Shared: 20, Native: 4, Idle: 8, Sharing: 41, Whole: 4, Waiting: 3, Reasons: map[plan.Code]int{plan.Native: 1, plan.MemoryOverflow: 2}}
	same(t, `
4/4 nodes, 32 GPUs: 20 shared, 4 native, 8 idle, 0 closed
Pods: 41 share, 4 on whole GPUs, 3 wait (2 MemoryOverflow, 1 Native), 0 below floor
cluster https://x
`, func(b *strings.Builder) error { return at(80, false).Status(b, &s, "cluster https://x") })
	for i := range 25 {
		s.Degraded = append(s.Degraded, fmt.Sprint("node-", i, "\n"))
	}
	var b strings.Builder
	if err := at(80, true).Status(&b, &s, "x"); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Count(text, "\x1b[31mDEGRADED\x1b[0m: node-") != 20 || !strings.Contains(text, ": 5 more; --json has all") || !strings.Contains(text, "node-3?\n") {
		t.Error(text)
	}
}

func TestTablesAreMarked(t *testing.T) {
	same(t, "NAMESPACE  NAME  STATE     GPU  RATE  FLOOR  TIME  REASON\n"+
		"ml         a     \x1b[33mwaiting\x1b[0m   -       -   90 %    5s  Planning\n"+
		"ml         b     \x1b[31minvalid!\x1b[0m  -       -      -    5s  Invalid\n"+
		"ml         c     running   n/0  81 %   \x1b[31m85 %!\x1b[0m   5s  below its floor\n",
		func(b *strings.Builder) error {
			since := now.Add(-5 * time.Second)
			return at(80, true).Pods(b, []look.Pod{{Namespace: "ml", Name: "a", State: look.Waiting, Floor: ptr(0.9), Since: since, Reason: "Planning"},
				{Namespace: "ml", Name: "b", State: look.Invalid, Since: since, Reason: "Invalid"},
				{Namespace: "ml", Name: "c", State: look.Running, On: []string{"n/0"}, Rate: ptr(0.81), Floor: ptr(0.85), Below: true, Since: since, Reason: "below its floor"}})
		})
}

func TestPlaces(t *testing.T) {
	for want, gpus := range map[string][]string{"-": nil, "n/gpu0": {"n/gpu0"}, "n/gpu0,1,11": {"n/gpu0", "n/gpu1", "n/gpu11"}, "n/gpu7 n-2/gpu0,1": {"n/gpu7", "n-2/gpu0", "n-2/gpu1"}} {
		if got := places(gpus); got != want {
			t.Errorf("%q: %q, want %q", gpus, got, want)
		}
	}
}

func TestRemoval(t *testing.T) {
	pods := []removal.Pod{
		{Namespace: "ml", Name: "bert-0", Mode: look.Shared, State: look.Running, Node: "n", GPUs: []string{"n/gpu0"}, Owner: "Job/bert", Since: ptr(now.Add(-12 * time.Minute))},
		{Namespace: "ml", Name: "late", Mode: look.Shared, State: look.Waiting, Since: ptr(now.Add(-time.Minute))},
		{Namespace: "plain", Claim: "c", Mode: look.Native, Node: "m", GPUs: []string{"m/gpu0", "m/gpu1"}, Orphaned: true},
	}
	same(t, `
POD                     MODE    STATE    GPU       OWNER     TIME
ml/bert-0               shared  running  n/gpu0    Job/bert   12m
ml/late                 shared  waiting  -         -           1m
resource claim plain/c  native  -        m/gpu0,1  -            -
m: no agent of weft runs there, so its Pods cannot end
`, func(b *strings.Builder) error { return at(80, false).Removal(b, pods) })
	same(t, "", func(b *strings.Builder) error { return at(80, false).Removal(b, nil) })
}
