package look

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/cluster"
	"weft.dev/weft/internal/kube"
	"weft.dev/weft/internal/kube/pod"
	"weft.dev/weft/internal/kube/queue"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// Workload is what runs and waits in a cluster, as jobs of a plan.
type Workload struct {
	Jobs      []cluster.Job // by ID, as the API lists nothing in a fixed order
	Memory    []Memory      // of each job's workers
	GPUMemory unit.Bytes    // usable, of the smallest GPU; 0 where weft serves none
	GPUs      int           // that weft serves
	Pods      int           // that the jobs are made of
	Shared    int           // Pods that opted in
	Running   int           // Pods that have a node
	Notes     []string
}

// Memory is what is known of a worker's memory.
type Memory struct {
	Profile profile.Profile
	Known   bool // otherwise it may need all of a GPU
	Alone   bool // it shares with nobody, whatever it needs
}

// Workload makes jobs of the Pods of a namespace, "" for all, that ask for GPUs and have not ended, opted in or not: those that did
// not are taken as if they had. Pods that start together are one job. floor is that of Pods for which neither they nor the policy say
// one.
func (l *Look) Workload(namespace string, floor float64) Workload {
	w := Workload{GPUs: len(l.q.GPUs)}
	most := unit.Bytes(0)
	for i := range l.q.GPUs {
		if m := l.q.GPUs[i].Memory; w.GPUMemory == 0 || m < w.GPUMemory {
			w.GPUMemory = m
		}
		most = max(most, l.q.GPUs[i].Memory)
	}
	if most > w.GPUMemory {
		w.Notes = append(w.Notes, fmt.Sprintf("GPUs have %v to %v: all are counted as the smallest; --gpu-memory says another", w.GPUMemory, most))
	}
	taken := map[*queue.Job]bool{}
	for _, p := range l.sortedPods(namespace) {
		state := l.stateOf(p)
		m, known := l.members[p.UID]
		if state == Ended || modeOf(p) == None || known && taken[m.job] {
			continue
		}
		members := []*corev1.Pod{p}
		if known {
			taken[m.job] = true
			members = nil
			for _, other := range m.job.Members {
				members = append(members, other.Pod)
			}
		}
		w.add(l, members, floor)
	}
	return w
}

// add makes one job of Pods.
func (w *Workload) add(l *Look, pods []*corev1.Pod, floor float64) {
	p := pods[0]
	spec := l.policy()
	d := pod.In(spec, p.Namespace, true)
	if spec.In(p.Namespace).Floor == "" {
		d.Floor = floor
	}
	j := cluster.Job{ID: nameOf(p), Name: queue.OwnerOf(p).Name, User: p.Namespace, Floor: d.Floor, Class: d.Class, Workers: 0, Share: unit.WholeGPU}
	mem := Memory{}
	asked, request := ask(p, d)
	if request == nil { // a Pod that cannot share
		mem.Alone = true
	} else {
		j.Floor, j.Class = request.Floor, request.Class
		j.Model, j.Batch = l.modelOf(p.Namespace, request.Profile)
		mem.Profile, mem.Known = l.q.Memory(asked, request)
	}
	for _, other := range pods {
		n := pod.WholeGPUs(other)
		if r, ok := l.members[other.UID]; ok && r.Request != nil {
			n = 0
			for _, worker := range r.Request.Workers {
				n += worker.GPUs
			}
		}
		j.Workers += max(1, n)
		w.Pods++
		if kube.Managed(other.Labels) {
			w.Shared++
		}
		if other.Spec.NodeName != "" {
			w.Running++
		}
	}
	w.Jobs, w.Memory = append(w.Jobs, j), append(w.Memory, mem)
}

// ask is what a Pod asks of weft, or would ask had it opted in; nil where it cannot share.
func ask(p *corev1.Pod, d pod.Defaults) (*corev1.Pod, *pod.Request) {
	if kube.Managed(p.Labels) {
		r, _ := pod.Read(p, d)
		return p, r
	}
	if s := p.Spec.SchedulerName; s != "" && s != corev1.DefaultSchedulerName || queue.OwnerOf(p).Kind == "DaemonSet" {
		return p, nil
	}
	p = p.DeepCopy()
	p.Spec.NodeName = "" // it was scheduled since it was created
	n := 0
	changed, faults := pod.Rewrite(p, d, func() string { n++; return fmt.Sprintf("%sasked-%d", pod.ClaimPrefix, n) })
	if !changed || len(faults) > 0 {
		return p, nil
	}
	r, _ := pod.Read(p, d)
	return p, r
}

// modelOf is the training configuration that a profile's name stands for, as the catalogue writes it where it knows it.
func (l *Look) modelOf(namespace, name string) (model, batch string) {
	if name == "" {
		return "", ""
	}
	model, batch, _ = strings.Cut(name, ":")
	for _, p := range l.c.Profiles {
		if p.Namespace == namespace && p.Name == name && p.Spec.Model != "" {
			model, batch = p.Spec.Model, p.Spec.Batch
		}
	}
	all := catalogue.All()
	if i := slices.IndexFunc(all, func(e catalogue.Entry) bool { return strings.EqualFold(e.Model, model) && e.Batch == batch }); i >= 0 {
		return all[i].Model, all[i].Batch
	}
	return model, batch
}
