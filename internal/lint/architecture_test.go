package lint

import "strings"

// row is one package of the architecture with what its code, tests aside, may import. Sub-packages inherit the row of
// their nearest ancestor, and they and their ancestor may import each other.
type row struct {
	pkg  string
	may  []string // packages of the module, with their sub-packages
	libs []string // modules of others
	pure bool     // no network, file, log, clock or global random code: time, randomness and order are inputs
}

// architecture is the whole module. To add a package, add its row: what it may import is a decision to be seen in
// review.
var architecture = []row{
	{pkg: "internal/unit", pure: true},
	{pkg: "internal/ledger", pure: true, may: upTo("unit")}, // who may use which memory of one GPU
	{pkg: "internal/cluster", pure: true, may: upTo("unit")},
	{pkg: "internal/profile", pure: true, may: upTo("unit")},
	{pkg: "internal/catalogue", pure: true, may: upTo("unit", "profile")},
	{pkg: "internal/interference", pure: true, may: upTo("unit", "cluster", "profile")},
	{pkg: "internal/plan", pure: true, may: upTo("unit", "cluster")},
	{pkg: "internal/placement", pure: true, may: upTo("unit", "cluster", "profile", "interference", "plan"),
		libs: []string{"github.com/google/btree", "gonum.org/v1/gonum"}},
	{pkg: "internal/box", pure: true, may: upTo("unit", "cluster", "plan")}, // the words of one shared machine
	{pkg: "internal/estimate", pure: true, may: append(upTo("catalogue"), decisions...)},
	{pkg: "internal/dispatch", pure: true, may: append(upTo("box"), decisions...)},
	{pkg: "internal/policy", pure: true, may: decisions, libs: []string{"github.com/google/btree"}},
	{pkg: "internal/arbiter", pure: true, may: upTo("unit")},
	{pkg: "internal/trace", pure: true, may: upTo("unit", "cluster")},
	{pkg: "internal/recording", pure: true, may: upTo("unit", "profile", "trace"), libs: []string{"sigs.k8s.io/yaml"}},
	{pkg: "internal/recording/drawing", pure: true, may: upTo("unit", "recording"), libs: []string{"gonum.org/v1/plot"}},
	{pkg: "internal/workload", pure: true, may: upTo("unit", "cluster", "profile", "interference", "trace")},
	{pkg: "internal/sim", pure: true, may: append(upTo("trace"), core...),
		libs: []string{"github.com/google/btree"}},
	{pkg: "internal/report", pure: true, may: append(upTo("trace", "sim"), core...)},
	{pkg: "internal/report/boxtable", pure: true, may: upTo("unit", "plan", "box", "report")},
	{pkg: "internal/wire"}, // the protocol between the shim and the agent
	{pkg: "internal/device", may: upTo("unit"), libs: []string{"github.com/NVIDIA/go-nvml"}},
	{pkg: "internal/agent", may: upTo("unit", "arbiter", "ledger", "wire", "device"), libs: []string{"golang.org/x/sys"}},
	{pkg: "internal/spelling", pure: true}, // the name that somebody meant
	{pkg: "internal/config", may: upTo("unit", "trace", "box", "spelling"), libs: []string{"sigs.k8s.io/yaml", "go.yaml.in/yaml"}},
	{pkg: "internal/shepherd", may: upTo("unit", "box"), libs: []string{"golang.org/x/sys"}}, // the process over one job
	{pkg: "internal/local", may: append(upTo("box", "estimate", "dispatch", "agent", "shepherd", "arbiter", "device", "catalogue", "spelling"), decisions...),
		libs: []string{"go.etcd.io/bbolt", "golang.org/x/sys"}},
	{pkg: "internal/web", may: upTo("unit", "plan", "box", "shepherd"), libs: []string{"github.com/prometheus", "golang.org/x/sys"}},
	{pkg: "internal/progress", pure: true, may: upTo("report")},
	{pkg: "internal/bench", libs: []string{"golang.org/x/sys"}},                                                                                                           // what weft costs on a GPU, with real processes
	{pkg: "internal/demo", may: upTo("unit", "box", "catalogue", "emugpu", "shepherd", "web", "profile"), libs: []string{"golang.org/x/sys"}},                             // a group of jobs, three ways
	{pkg: "internal/emugpu", may: upTo("unit"), libs: []string{"golang.org/x/sys"}},                                                                                       // emulated GPUs and their broker
	{pkg: "internal/emugpu/model", pure: true, may: upTo("unit")},                                                                                                         // when work on GPUs ends
	{pkg: "api/v1alpha1", libs: []string{"k8s.io/apimachinery"}},                                                                                                          // what weft adds to the Kubernetes API
	{pkg: "internal/kube", pure: true},                                                                                                                                    // names in the API
	{pkg: "internal/kube/pod", pure: true, may: append(upTo("unit", "cluster", "spelling", "kube"), "api/v1alpha1"), libs: []string{"k8s.io/api", "k8s.io/apimachinery"}}, // Pods as users write them
	{pkg: "internal/kube/webhook", may: append(upTo("unit", "catalogue", "profile", "spelling", "kube"), "api/v1alpha1"), // answers the API server about what users write
		libs: []string{"k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/controller-runtime", "gomodules.xyz/jsonpatch"}},
	{pkg: "internal/kube/verdict", may: append(upTo("unit", "catalogue", "kube"), "api/v1alpha1"), libs: []string{"k8s.io/apimachinery", "sigs.k8s.io/controller-runtime"}}, // whether policies and profiles are in force
	{pkg: "internal/kube/claim", pure: true, may: append(upTo("unit", "cluster", "kube"), "api/v1alpha1"), libs: []string{"k8s.io/api", "k8s.io/apimachinery"}},             // the durable record of a placement
	{pkg: "internal/kube/queue", pure: true, may: append(upTo("box", "estimate", "dispatch", "catalogue", "kube"), append([]string{"api/v1alpha1"}, decisions...)...), // a cluster as a question for dispatch
		libs: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/component-helpers", "k8s.io/klog"}},
	{pkg: "internal/kube/adjust", pure: true, may: append(upTo("estimate", "dispatch", "catalogue", "kube", "box"), append([]string{"api/v1alpha1"}, decisions...)...), // what follows in a cluster from what agents observed
		libs: []string{"k8s.io/api", "k8s.io/apimachinery"}},
	{pkg: "internal/kube/learned", pure: true, may: upTo("estimate"), libs: []string{"k8s.io/api"}},                                      // what was learned of jobs, as a cluster keeps it
	{pkg: "internal/kube/world", may: append(upTo("unit", "kube"), "api/v1alpha1"), libs: []string{"k8s.io/api", "k8s.io/apimachinery"}}, // clusters made by hand, for tests
	{pkg: "internal/kube/look", pure: true, may: append(upTo("box", "estimate", "dispatch", "catalogue", "kube"), append([]string{"api/v1alpha1"}, decisions...)...), // what people ask of a cluster
		libs: []string{"k8s.io/api", "k8s.io/apimachinery"}},
	{pkg: "internal/kube/look/reader", may: append(upTo("kube"), "api/v1alpha1"), libs: []string{"k8s.io"}},            // reads a cluster once
	{pkg: "internal/kube/removal", pure: true, may: upTo("kube"), libs: []string{"k8s.io/api", "k8s.io/apimachinery"}}, // how weft leaves a cluster
	{pkg: "internal/kube/removal/remover", may: upTo("kube"), libs: []string{"k8s.io"}},                                // carries that out
	{pkg: "internal/report/kubetable", pure: true, may: upTo("unit", "plan", "report", "kube")},
	{pkg: "internal/kube/controller", may: append(upTo("unit", "cluster", "box", "estimate", "dispatch", "plan", "kube"), "api/v1alpha1"), // plans for a cluster and acts on it
		libs: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "github.com/prometheus"}},
	{pkg: "internal/kube/driver", may: append(upTo("unit", "cluster", "device", "agent", "kube"), "api/v1alpha1"), // serves the GPUs of a node to the kubelet
		libs: []string{"k8s.io", "github.com/go-logr/logr", "sigs.k8s.io/yaml", "google.golang.org/grpc", "golang.org/x/sys"}},
	{pkg: "internal/shared"}, // finds the data of tests
	{pkg: "internal/lint"},
	{pkg: "test/suite"}, // what the tests of the whole share
	{pkg: "test/agent", libs: []string{"golang.org/x/sys"}},                                            // real programs under a real agent on emulated GPUs
	{pkg: "test/box", libs: []string{"golang.org/x/sys"}},                                              // weft up, whole, with real programs on emulated GPUs
	{pkg: "test/admission", libs: []string{"k8s.io", "sigs.k8s.io", "gopkg.in/evanphx/json-patch.v4"}}, // what users write, against a real API server
	{pkg: "test/chart", libs: []string{"helm.sh/helm", "sigs.k8s.io/yaml"}},                            // renders the chart; a module of its own
	{pkg: "test/demo"}, // weft demo, whole
	{pkg: "test/kube", may: []string{"test/cluster"}, libs: []string{"k8s.io"}},  // weft in a real cluster, with programs on emulated GPUs
	{pkg: "test/cluster", may: upTo("kube"), libs: []string{"golang.org/x/sys"}}, // a real Kubernetes cluster for tests
	{pkg: "shim/programs", may: upTo("unit", "profile", "catalogue")},            // writes tables for programs in C
	{pkg: "cmd/weft", may: []string{"internal", "api"}, libs: []string{"github.com/alecthomas/kong", "charm.land/bubbletea", "golang.org/x/term", "golang.org/x/sys",
		"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog", "sigs.k8s.io/controller-runtime"}},
}

// decisions are the packages that a decision is made of, and core those and the rules that use them.
var (
	decisions = upTo("unit", "cluster", "profile", "interference", "plan", "placement")
	core      = append(upTo("policy"), decisions...)
)

// adapters act on one world each: recorded clusters, one machine, Kubernetes. None imports another; cmd joins them.
var adapters = []string{"internal/sim", "internal/local", "internal/kube"}

// testOnly may be imported by tests alone, and testLibs are the modules of others that tests may use besides those of
// their package.
var (
	testOnly = []string{"internal/shared", "internal/kube/world"}
	testLibs = []string{
		"pgregory.net/rapid", "github.com/google/go-cmp", "github.com/rogpeppe/go-internal", "go.uber.org/goleak",
		"github.com/chromedp/chromedp", "github.com/chromedp/cdproto", "sigs.k8s.io/yaml", "gopkg.in/evanphx/json-patch.v4",
	}
)

// impure are packages that reach past the arguments of a function, and what to do instead.
var impure = map[string]string{
	"net":     "adapters talk",
	"os":      "open at the edge and hand in a reader or writer",
	"log":     "return an error or a reason; the edge logs",
	"syscall": "hand in what is needed",
	"unsafe":  "use safe code",
}

func upTo(names ...string) []string {
	list := make([]string, len(names))
	for i, n := range names {
		list[i] = "internal/" + n
	}
	return list
}

// under says whether a slash-separated path is a prefix or below it.
func under(path, prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }

// anyUnder says whether a path is under any of the prefixes.
func anyUnder(path string, prefixes []string) bool {
	for _, p := range prefixes {
		if under(path, p) {
			return true
		}
	}
	return false
}

// rowOf is the row of a package: its own or that of its nearest ancestor.
func rowOf(pkg string, rows []row) (row, bool) {
	var best row
	for _, r := range rows {
		if under(pkg, r.pkg) && len(r.pkg) > len(best.pkg) {
			best = r
		}
	}
	return best, best.pkg != ""
}
