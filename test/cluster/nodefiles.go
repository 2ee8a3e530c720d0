package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
)

// object is a JSON object.
type object map[string]any

// schedulerFile does not keep the scheduler from what it can do: tests bring thousands of Pods.
func (s settings) schedulerFile() ([]byte, error) {
	return json.MarshalIndent(object{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"leaderElection":   object{"leaderElect": false},
		"clientConnection": object{"kubeconfig": s.kubeconfig(Scheduler), "qps": 1000, "burst": 2000},
	}, "", "  ")
}

// kubeletFile makes a node of a machine that need not be one: swap may be on, the disk rather full, and nobody's firewall and
// resolver change. The root folder stays the usual one, because device plugins and DRA drivers know its path.
func (s settings) kubeletFile() ([]byte, error) {
	return json.MarshalIndent(object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + s.socket(),
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               "/" + cgroup,
		"failCgroupV1":             false,
		"failSwapOn":               false,
		"address":                  nodeAddress,
		"port":                     s.Ports.Kubelet,
		"healthzBindAddress":       loopback,
		"healthzPort":              s.Ports.KubeletHealth,
		"readOnlyPort":             0,
		"tlsCertFile":              s.pki("kubelet.crt"),
		"tlsPrivateKeyFile":        s.pki("kubelet.key"),
		"authentication": object{
			"anonymous": object{"enabled": false}, "webhook": object{"enabled": true}, "x509": object{"clientCAFile": s.pki("ca.crt")},
		},
		"authorization":          object{"mode": "Webhook"},
		"resolvConf":             "",
		"makeIPTablesUtilChains": false,
		"evictionHard": map[string]string{
			"memory.available": "50Mi", "nodefs.available": "1Mi", "nodefs.inodesFree": "0%", "imagefs.available": "1Mi",
		},
		"imageGCHighThresholdPercent": 100,
		"imageGCLowThresholdPercent":  99,
		"nodeStatusUpdateFrequency":   "2s",
		"syncFrequency":               "10s",
		"kubeAPIQPS":                  200,
		"kubeAPIBurst":                400,
		"podLogsDir":                  s.path("podlogs"),
		"volumePluginDir":             s.path("volumeplugins"),
	}, "", "  ")
}

// containerdFile keeps everything of containerd below the state folder. Sandboxes cannot lower their score for the killer of
// processes in every place where tests run, hence restrict_oom_score_adj.
func (s settings) containerdFile(plugins string) []byte {
	return []byte(strings.NewReplacer("DIR", s.Dir, "SOCKET", s.socket(), "CNI", plugins, "PAUSE", PauseImage).Replace(`version = 3
root = "DIR/containerd/root"
state = "DIR/containerd/state"

[grpc]
  address = "SOCKET"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  disable_snapshot_annotations = true
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "PAUSE"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["/var/run/cdi"]
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["CNI"]
    conf_dir = "DIR/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      Root = "DIR/runc"
      SystemdCgroup = false

[plugins."io.containerd.internal.v1.opt"]
  path = "DIR/containerd/opt"

[plugins."io.containerd.nri.v1.nri"]
  disable = true
`))
}

// networkFile connects Pods with each other, with this machine and with the API server, and with nothing else.
func (s settings) networkFile() ([]byte, error) {
	return json.MarshalIndent(object{
		"cniVersion": "0.4.0", "name": network,
		"plugins": []object{{
			"type": "bridge", "bridge": podBridge, "isGateway": true, "ipMasq": false,
			"ipam": object{
				"type": "host-local", "dataDir": s.path("ipam"), "ranges": [][]object{{{"subnet": pods}}},
				"routes": []object{{"dst": services}, {"dst": nodeAddress + "/32"}},
			},
		}},
	}, "", "  ")
}

// kwokFile has kwok look after the nodes that Nodes makes, and leave the real one alone.
func (s settings) kwokFile(stages []byte) []byte {
	head := `kind: KwokConfiguration
apiVersion: config.kwok.x-k8s.io/v1alpha1
options:
  cidr: 10.0.0.1/8
  nodeIP: ` + loopback + `
  manageAllNodes: false
  manageNodesWithAnnotationSelector: ` + fmt.Sprintf("%q", fakeKey+"="+fakeValue) + `
  nodeLeaseDurationSeconds: 40
  nodePlayStageParallelism: 8
  podPlayStageParallelism: 8
  nodeLeaseParallelism: 8
`
	return append([]byte(head), stages...)
}
