package cluster

import (
	"encoding/json"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func example(t *testing.T) settings {
	t.Helper()
	s, free, err := newSettings("/var/lib/example", "/cache/bin", map[string][]string{APIServer: {"--v=4"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(free)
	s.Address, s.Ports.API, s.Node = apiAddress, 443, true
	return s
}

var every = []string{Etcd, APIServer, ControllerManager, Scheduler, Containerd, Kubelet, Kwok}

// ours are addresses that no other machine reaches.
var ours = []string{loopback, apiAddress, nodeAddress}

// TestNothingListensOutside looks at every argument that names an address: all are this machine's alone, and each port is
// another one.
func TestNothingListensOutside(t *testing.T) {
	s := example(t)
	flags := map[string]int{}
	for _, name := range every {
		line, err := s.command(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, argument := range line.arguments {
			flag, value, _ := strings.Cut(argument, "=")
			if flag == "--kubelet-preferred-address-types" || !strings.Contains(flag, "address") && !strings.Contains(flag, "-urls") && flag != "--node-ip" {
				continue
			}
			flags[name]++
			host := value
			if u, err := url.Parse(value); err == nil && u.Host != "" {
				host = u.Host
			}
			if h, _, err := net.SplitHostPort(host); err == nil {
				host = h
			}
			if !slices.Contains(ours, host) {
				t.Errorf("%s: %s", name, argument)
			}
		}
	}
	for name, want := range map[string]int{Etcd: 4, APIServer: 2, ControllerManager: 1, Scheduler: 1, Kubelet: 1, Kwok: 1} {
		if flags[name] != want {
			t.Errorf("%s has %d arguments with an address, want %d", name, flags[name], want)
		}
	}
	var kubelet struct {
		Address, HealthzBindAddress, CgroupRoot string
		ReadOnlyPort                            *int
		FailCgroupV1                            *bool
	}
	text, err := s.kubeletFile()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &kubelet); err != nil {
		t.Fatal(err)
	}
	if kubelet.Address != nodeAddress || kubelet.HealthzBindAddress != loopback || *kubelet.ReadOnlyPort != 0 || *kubelet.FailCgroupV1 ||
		kubelet.CgroupRoot != "/"+cgroup {
		t.Errorf("%+v", kubelet)
	}
	p := s.Ports
	all := []int{p.API, p.Etcd, p.EtcdPeer, p.ControllerManager, p.Scheduler, p.Kubelet, p.KubeletHealth, p.Kwok}
	slices.Sort(all)
	if all[0] <= 0 || len(slices.Compact(all)) != 8 {
		t.Errorf("ports %v", all)
	}
}

func TestCommands(t *testing.T) {
	s := example(t)
	line, err := s.command(APIServer)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"--bind-address=10.96.0.1", "--secure-port=443", "--enable-aggregator-routing=true", "--authorization-mode=Node,RBAC",
		"--service-cluster-ip-range=10.96.0.0/24", "--tls-cert-file=/var/lib/example/pki/api.crt",
	} {
		if !slices.Contains(line.arguments, want) {
			t.Errorf("the API server has no %s among %v", want, line.arguments)
		}
	}
	if last := line.arguments[len(line.arguments)-1]; last != "--v=4" {
		t.Errorf("the last argument is %s, not the further one", last)
	}
	s.Node = false
	line, err = s.command(APIServer)
	if err != nil || slices.ContainsFunc(line.arguments, func(a string) bool { return strings.Contains(a, "kubelet") }) {
		t.Errorf("without a node: %v, %v", line.arguments, err)
	}
	if _, err := s.command("apisever"); err == nil {
		t.Error("a name with a letter missing is a component")
	}
	if _, _, err := newSettings("/d", "/b", map[string][]string{"apisever": nil}); err == nil || !strings.Contains(err.Error(), `"apisever"`) {
		t.Errorf("further arguments for what is no component: %v", err)
	}
}

// TestAccess reads tokens and kubeconfigs as their readers do.
func TestAccess(t *testing.T) {
	s := example(t)
	tokens := map[string][]string{}
	for line := range strings.Lines(s.tokens()) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		if len(fields) < 3 || len(fields[0]) != 32 {
			t.Fatalf("the line %q", line)
		}
		tokens[fields[0]] = fields[1:]
	}
	if len(tokens) != len(users) {
		t.Fatalf("%d tokens for %d users", len(tokens), len(users))
	}
	for _, u := range users {
		text, err := s.kubeconfigFile(u.name, []byte("a certificate"))
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			Clusters []struct {
				Cluster struct {
					Server string
					CA     []byte `json:"certificate-authority-data"`
				}
			}
			Users []struct{ User struct{ Token string } }
		}
		if err := json.Unmarshal(text, &config); err != nil {
			t.Fatal(err)
		}
		who := tokens[config.Users[0].User.Token]
		if len(who) < 2 || who[0] != u.user || u.group != "" && who[2] != u.group || u.group == "" && len(who) != 2 {
			t.Errorf("%s is %v", u.name, who)
		}
		if c := config.Clusters[0].Cluster; c.Server != "https://10.96.0.1:443" || string(c.CA) != "a certificate" {
			t.Errorf("%s: %+v", u.name, c)
		}
	}
}

func TestNodeFiles(t *testing.T) {
	s := example(t)
	text := string(s.containerdFile("/usr/lib/cni"))
	for _, want := range []string{
		`root = "/var/lib/example/containerd/root"`, `address = "/var/lib/example/containerd.sock"`, "enable_cdi = true",
		"restrict_oom_score_adj = true", `sandbox = "weft.local/pause:1"`, `bin_dirs = ["/usr/lib/cni"]`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("containerd's file has no %s", want)
		}
	}
	for _, placeholder := range []string{"DIR", "SOCKET", "CNI", "PAUSE"} {
		if strings.Contains(text, placeholder) {
			t.Errorf("containerd's file has %s left", placeholder)
		}
	}
	kwok := string(s.kwokFile([]byte("---\nkind: Stage\n")))
	if !strings.Contains(kwok, `"kwok.x-k8s.io/node=fake"`) || !strings.HasSuffix(kwok, "---\nkind: Stage\n") {
		t.Error(kwok)
	}
	if _, err := s.networkFile(); err != nil {
		t.Error(err)
	}
}
