package queue

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/kube/claim"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// figures are what is known of a kind of job alone.
type figures struct {
	key        string
	persistent unit.Bytes
	peak       unit.Bytes // 0 for unknown
	shape      string
	cooperates bool
	told       estimate.Alone
}

// know finds out what a job needs and what it is alike with. What a claim says of a job that is placed comes first: it is what its
// worker was given.
func (q *Queue) know(j *Job) {
	if j.Native {
		return
	}
	class := j.Members[0].Request.Class
	f, bad := q.figuresOf(j.Members[0])
	j.Key, j.Kind = f.key, estimate.Kind{Key: f.key, Class: class}
	if f.told != (estimate.Alone{}) {
		q.book.Tell(f.key, f.told)
	}
	if j.placed() {
		s := j.Members[0].Shares[0]
		j.reserved, j.peak, j.cooperates, j.alone = s.Reserved, s.Peak, s.Cooperates, s.Whole || s.Part >= oneResident
		for _, m := range j.Members {
			for _, s := range m.Shares {
				j.reserved, j.peak = max(j.reserved, s.Reserved), max(j.peak, s.Peak)
			}
		}
	} else {
		j.bad = cmp.Or(j.bad, bad)
		j.need(f)
	}
	if j.alone {
		j.Kind = estimate.Kind{}
	}
}

// oneResident is the part of a worker that shares with nobody.
var oneResident = claim.Part(1, true)

// need is the memory of a job that is to be placed: the largest that its Pods state, else what its profile says, else all.
func (j *Job) need(f figures) {
	for _, m := range j.Members {
		j.peak = max(j.peak, m.Request.Peak)
	}
	if j.peak == 0 {
		j.peak = f.peak
	}
	j.alone = j.peak == 0
	j.peak = claim.Round(j.peak)
	j.reserved = j.peak
	if f.cooperates && f.persistent < j.peak && f.persistent > 0 {
		j.reserved, j.cooperates = claim.Round(f.persistent), true
	}
	if j.reserved == j.peak {
		j.cooperates = false
	}
}

// memory is a job's memory as placement sees it: flat at its peak unless it hands memory over.
func (q *Queue) memory(j *Job) profile.Profile {
	if !j.cooperates {
		return profile.Flat(max(1, j.peak))
	}
	f, _ := q.figuresOf(j.Members[0])
	shape, _ := profile.NamedShape(f.shape)
	return profile.New(j.reserved, j.peak, shape)
}

// figuresOf is what the profile of a Pod says; where it names none, the Pod is alike with those of its owner. The text says what
// is wrong with the profile.
func (q *Queue) figuresOf(m *Member) (figures, string) {
	name, namespace := m.Request.Profile, m.Pod.Namespace
	if name == "" {
		return figures{key: namespace + "/" + OwnerOf(m.Pod).String()}, ""
	}
	if f, ok := q.profile(namespace, name); ok {
		return f, ""
	}
	return figures{}, "profile " + name + " is neither a WorkloadProfile of " + namespace + " nor a model:batch of the catalogue"
}

// profile is what a name stands for in a namespace.
func (q *Queue) profile(namespace, name string) (figures, bool) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if q.profiles == nil {
		q.profiles = map[types.NamespacedName]figures{}
		for _, p := range q.cluster.Profiles {
			q.profiles[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = fromProfile(p)
		}
	}
	f, ok := q.profiles[key]
	if !ok {
		if f, ok = fromCatalogue(name); ok {
			q.profiles[key] = f
		}
	}
	return f, ok
}

// fromProfile reads a WorkloadProfile: what its author states, then what was learned, then the catalogue. Jobs hand memory over where
// the author says how much they always hold, or that was seen; that others' did is no proof.
func fromProfile(p *v1alpha1.WorkloadProfile) figures {
	f := figures{}
	if p.Spec.Model != "" {
		f, _ = fromCatalogue(p.Spec.Model + ":" + p.Spec.Batch)
	}
	f.key, f.told.Source = p.Namespace+"/profile/"+p.Name, estimate.Declared
	learned := p.Status.Source == v1alpha1.SourceLearned
	for i, from := range []v1alpha1.Figures{p.Status.Figures, p.Spec.Figures} {
		if mem := from.Memory; mem != nil {
			f.peak, f.shape = unit.Bytes(mem.Peak.Value()), mem.Shape
			f.persistent, f.cooperates = f.peak, false
			if mem.Persistent != nil {
				f.persistent = unit.Bytes(mem.Persistent.Value())
				f.cooperates = f.persistent < f.peak && (i > 0 || learned)
			}
		}
		if from.UtilisationPercent != nil {
			f.told.Busy = float64(*from.UtilisationPercent) / 100
		}
		if len(from.Rates) > 0 {
			f.told.Rate = from.Rates[0].StepsPerSecond.Float(0)
		}
	}
	if f.told.Busy == 0 && f.told.Rate == 0 {
		f.told = estimate.Alone{}
	}
	return f
}

// fromCatalogue finds "model:batch", of the GPU with most to say about it.
func fromCatalogue(name string) (figures, bool) {
	model, batch, _ := strings.Cut(name, ":")
	var found []catalogue.Entry
	for _, e := range catalogue.All() {
		if strings.EqualFold(e.Model, model) && e.Batch == batch {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		return figures{}, false
	}
	e := slices.MaxFunc(found, func(a, b catalogue.Entry) int { return cmp.Compare(worth(a), worth(b)) })
	return figures{key: strings.ToLower(strings.TrimSuffix(name, ":")), peak: e.Peak, persistent: cmp.Or(e.Persistent, e.Peak), shape: e.Shape,
		told: estimate.Alone{Rate: e.Rate, Busy: e.GPUUtil, Source: estimate.Catalogue}}, true
}

// worth orders entries of one configuration by how much they say.
func worth(e catalogue.Entry) int {
	n := 0
	for _, part := range []struct {
		known  bool
		weight int
	}{{e.GPUUtil > 0, 4}, {e.Peak > 0, 4}, {e.Shape != "", 2}, {e.Persistent > 0, 1}} {
		if part.known {
			n += part.weight
		}
	}
	return n
}

// Owner is what a Pod belongs to.
type Owner struct{ Kind, Name string }

// String is the owner as people read it: "Deployment/serve".
func (o Owner) String() string { return o.Kind + "/" + o.Name }

// hashLabel is the label by which a Deployment tells its ReplicaSets apart, and the end of their names.
const hashLabel = "pod-template-hash"

// OwnerOf is the controller of a Pod: of a ReplicaSet that a Deployment made, the Deployment; without one, the Pod itself.
func OwnerOf(p *corev1.Pod) Owner {
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return Owner{"Pod", p.Name}
	}
	if hash := p.Labels[hashLabel]; owner.Kind == "ReplicaSet" && hash != "" {
		if name, ok := strings.CutSuffix(owner.Name, "-"+hash); ok {
			return Owner{deployment, name}
		}
	}
	return Owner{owner.Kind, owner.Name}
}
