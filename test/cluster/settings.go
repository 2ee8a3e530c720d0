package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// Addresses. The two of the API server and of the node are on a bridge without ports, which no other machine is on, and Pods
// are on another one.
const (
	apiAddress  = "10.96.0.1" // the first of the Services, where Pods look for the API server
	services    = "10.96.0.0/24"
	nodeAddress = "10.97.0.1"
	pods        = "10.88.0.0/24"
	loopback    = "127.0.0.1"

	apiBridge = "weft-api"
	podBridge = "weft-pods"
	network   = "weft-cluster" // of the Pods, by CNI
)

// NodeName is the name of the one real node.
const NodeName = "node-0"

// Names of components.
const (
	Etcd              = "etcd"
	APIServer         = "apiserver"
	ControllerManager = "controller-manager"
	Scheduler         = "scheduler"
	Containerd        = "containerd"
	Kubelet           = "kubelet"
	Kwok              = "kwok"
)

// settings are what the components' arguments and files follow from.
type settings struct {
	Dir      string              `json:"dir"`             // state
	Binaries Binaries            `json:"binaries"`        // programs
	Address  string              `json:"address"`         // of the API server
	Ports    ports               `json:"ports"`           //
	Tokens   map[string]string   `json:"tokens"`          // by user
	Node     bool                `json:"node"`            // with a node: the API server reaches the kubelet and Pods
	Extra    map[string][]string `json:"extra,omitempty"` // further arguments by component
}

// ports are TCP ports, all on addresses of this machine alone.
type ports struct {
	API               int `json:"api"`
	Etcd              int `json:"etcd"`
	EtcdPeer          int `json:"etcd_peer"`
	ControllerManager int `json:"controller_manager"`
	Scheduler         int `json:"scheduler"`
	Kubelet           int `json:"kubelet"`
	KubeletHealth     int `json:"kubelet_health"`
	Kwok              int `json:"kwok"`
}

func (s settings) path(parts ...string) string {
	return filepath.Join(append([]string{s.Dir}, parts...)...)
}

func (s settings) pki(name string) string        { return s.path("pki", name) }
func (s settings) kubeconfig(user string) string { return s.path(user + ".kubeconfig") }
func (s settings) socket() string                { return s.path("containerd.sock") }
func (s settings) server() string                { return "https://" + at(s.Address, s.Ports.API) }

func at(address string, port int) string { return net.JoinHostPort(address, strconv.Itoa(port)) }

// users are who the components are in the API, with their groups. The kubelet is what the Node authorizer knows.
var users = []struct{ name, user, group string }{
	{"admin", "admin", "system:masters"},
	{ControllerManager, "system:kube-controller-manager", ""},
	{Scheduler, "system:kube-scheduler", ""},
	{Kubelet, "system:node:" + NodeName, "system:nodes"},
}

// command is how a component is started.
type command struct {
	program   string
	arguments []string
}

// command is the command line of a component, with the further arguments last, so that they win.
func (s settings) command(name string) (command, error) {
	c := command{}
	switch name {
	case Etcd:
		c = command{program: "etcd", arguments: s.etcd()}
	case APIServer:
		c = command{program: "kube-apiserver", arguments: s.apiServer()}
	case ControllerManager:
		c = command{program: "kube-controller-manager", arguments: s.controllerManager()}
	case Scheduler:
		c = command{program: "kube-scheduler", arguments: []string{
			"--config=" + s.path("scheduler.json"), "--bind-address=" + loopback, "--secure-port=" + strconv.Itoa(s.Ports.Scheduler),
			"--tls-cert-file=" + s.pki("local.crt"), "--tls-private-key-file=" + s.pki("local.key"),
			"--authentication-kubeconfig=" + s.kubeconfig(Scheduler), "--authorization-kubeconfig=" + s.kubeconfig(Scheduler),
		}}
	case Containerd:
		c = command{program: "containerd", arguments: []string{"--config", s.path("containerd.toml")}}
	case Kubelet:
		c = command{program: "kubelet", arguments: []string{
			"--config=" + s.path("kubelet.json"), "--kubeconfig=" + s.kubeconfig(Kubelet), "--hostname-override=" + NodeName,
			"--node-ip=" + nodeAddress, "--cert-dir=" + s.path("kubelet"), "--v=2",
		}}
	case Kwok:
		c = command{program: "kwok", arguments: []string{
			"--kubeconfig=" + s.kubeconfig("admin"), "--config=" + s.path("kwok.yaml"), "--server-address=" + at(loopback, s.Ports.Kwok),
		}}
	default:
		return c, fmt.Errorf("there is no component %q", name)
	}
	c.arguments = append(c.arguments, s.Extra[name]...)
	return c, nil
}

// etcd keeps nothing beyond the machine's own end: without syncs it answers in a fraction of the time, and a killed process
// loses nothing.
func (s settings) etcd() []string {
	client, peer := "https://"+at(loopback, s.Ports.Etcd), "https://"+at(loopback, s.Ports.EtcdPeer)
	return []string{
		"--name=" + Etcd, "--data-dir=" + s.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + Etcd + "=" + peer,
		"--client-cert-auth", "--trusted-ca-file=" + s.pki("ca.crt"), "--cert-file=" + s.pki("local.crt"), "--key-file=" + s.pki("local.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + s.pki("ca.crt"),
		"--peer-cert-file=" + s.pki("local.crt"), "--peer-key-file=" + s.pki("local.key"),
	}
}

func (s settings) apiServer() []string {
	list := []string{
		"--etcd-servers=https://" + at(loopback, s.Ports.Etcd), "--etcd-cafile=" + s.pki("ca.crt"),
		"--etcd-certfile=" + s.pki("local.crt"), "--etcd-keyfile=" + s.pki("local.key"),
		"--bind-address=" + s.Address, "--advertise-address=" + s.Address, "--secure-port=" + strconv.Itoa(s.Ports.API),
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=" + services,
		"--cert-dir=" + s.path("apiserver"), "--tls-cert-file=" + s.pki("api.crt"), "--tls-private-key-file=" + s.pki("api.key"),
		"--client-ca-file=" + s.pki("ca.crt"), "--token-auth-file=" + s.path("tokens.csv"), "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.pki("sa.pub"), "--service-account-signing-key-file=" + s.pki("sa.key"),
	}
	if !s.Node {
		return list
	}
	return append(list,
		"--enable-aggregator-routing=true", // nothing serves the addresses of Services: webhooks are called at their Pods'
		"--kubelet-certificate-authority="+s.pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate="+s.pki("api-client.crt"), "--kubelet-client-key="+s.pki("api-client.key"))
}

func (s settings) controllerManager() []string {
	own := s.kubeconfig(ControllerManager)
	return []string{
		"--kubeconfig=" + own, "--authentication-kubeconfig=" + own, "--authorization-kubeconfig=" + own,
		"--bind-address=" + loopback, "--secure-port=" + strconv.Itoa(s.Ports.ControllerManager),
		"--tls-cert-file=" + s.pki("local.crt"), "--tls-private-key-file=" + s.pki("local.key"), "--leader-elect=false",
		"--use-service-account-credentials", "--service-account-private-key-file=" + s.pki("sa.key"), "--root-ca-file=" + s.pki("ca.crt"),
		"--cluster-signing-cert-file=" + s.pki("ca.crt"), "--cluster-signing-key-file=" + s.pki("ca.key"),
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--flex-volume-plugin-dir=" + s.path("volumeplugins"), // it makes the folder
	}
}

// tokens is the API server's file of who is who.
func (s settings) tokens() string {
	var b strings.Builder
	for i, u := range users {
		fmt.Fprintf(&b, "%s,%s,u%d", s.Tokens[u.name], u.user, i)
		if u.group != "" {
			b.WriteString("," + u.group)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// kubeconfigFile is how a user reaches the API server. JSON is YAML.
func (s settings) kubeconfigFile(user string, ca []byte) ([]byte, error) {
	type named map[string]any
	return json.MarshalIndent(named{
		"apiVersion": "v1", "kind": "Config", "current-context": "weft",
		"clusters": []named{{"name": "weft", "cluster": named{"server": s.server(), "certificate-authority-data": ca}}},
		"users":    []named{{"name": user, "user": named{"token": s.Tokens[user]}}},
		"contexts": []named{{"name": "weft", "context": named{"cluster": "weft", "user": user}}},
	}, "", "  ")
}
