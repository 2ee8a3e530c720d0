package local

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weft.dev/weft/internal/agent"
	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/catalogue"
	"weft.dev/weft/internal/estimate"
	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/spelling"
	"weft.dev/weft/internal/unit"
)

// leastMemory is the agent's: a context alone takes about as much.
const leastMemory = agent.LeastMemory

// parts is how many jobs that say nothing of their memory fit on a GPU.
const parts = 4

// largest is the usable memory of the largest GPU.
func (b *Box) largest() unit.Bytes {
	var most unit.Bytes
	for _, g := range b.gpus {
		most = max(most, g.Usable)
	}
	return most
}

// part is what a job is given that says nothing of its memory.
func (b *Box) part() unit.Bytes {
	least := b.largest()
	for _, g := range b.gpus {
		least = min(least, g.Usable)
	}
	return max(leastMemory, least/parts)
}

// resolveProfile fills what a job's profile says of it. A profile is "model:batch" of the catalogue, or the name of a job that
// ran here. The mutex is held.
func (b *Box) resolveProfile(r *record) error {
	if r.Profile == "" {
		return nil
	}
	if e, ok := b.inCatalogue(r.Profile); ok {
		r.Key = strings.ToLower(r.Profile)
		r.PeakBytes, r.Persistent, r.Shape = e.Peak, cmp.Or(e.Persistent, e.Peak), e.Shape
		b.book.Tell(r.Key, estimate.Alone{Rate: b.rateHere(e), Busy: e.GPUUtil, Source: "catalogue"})
		return nil
	}
	if like := b.lastNamed(r.Profile, r.UID); like != nil {
		r.Key, r.PeakBytes, r.Persistent, r.Shape = like.Key, like.PeakBytes, like.Persistent, like.Shape
		return nil
	}
	return bad("ProfileUnknown", "profile", r.Profile, fmt.Sprintf("no profile %q", r.Profile), "it is a model:batch of the catalogue, or the name of a job that ran here",
		nearestProfiles(r.Profile))
}

// rateHere is the speed alone of an entry, if it was measured on GPUs of this kind.
func (b *Box) rateHere(e catalogue.Entry) float64 {
	if b.o.GPU == "" || !strings.EqualFold(e.GPU, b.o.GPU) {
		return 0
	}
	return e.Rate
}

// inCatalogue finds "model:batch" for this machine's GPUs, or else for the GPU with most to say about it.
func (b *Box) inCatalogue(name string) (catalogue.Entry, bool) {
	model, batch, _ := strings.Cut(name, ":")
	var found []catalogue.Entry
	for _, e := range catalogue.All() {
		if strings.EqualFold(e.Model, model) && e.Batch == batch {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		return catalogue.Entry{}, false
	}
	return slices.MaxFunc(found, func(x, y catalogue.Entry) int { return cmp.Compare(b.worth(x), b.worth(y)) }), true
}

// worth orders entries of one configuration: the machine's own GPU first, then those that know more.
func (b *Box) worth(e catalogue.Entry) int {
	n := 0
	if b.rateHere(e) > 0 {
		n += 8
	}
	if e.GPUUtil > 0 {
		n += 4
	}
	if e.Peak > 0 {
		n += 4
	}
	if e.Shape != "" {
		n += 2
	}
	if e.Persistent > 0 {
		n++
	}
	return n
}

// lastNamed is the last job of a name of a user. The mutex is held.
func (b *Box) lastNamed(name string, uid int) *record {
	for i := len(b.order) - 1; i >= 0; i-- {
		if j := b.jobs[b.order[i]]; j.Name == name && j.UID == uid && j.Attempt > 0 {
			return &j.record
		}
	}
	return nil
}

// nearestProfiles offers names of the catalogue like one that is not there.
func nearestProfiles(name string) string {
	var names []string
	for _, e := range catalogue.All() {
		names = append(names, e.Model)
		if e.Batch != "" {
			names = append(names, e.Model+":"+e.Batch)
		}
	}
	slices.Sort(names)
	if near := spelling.Near(name, slices.Compact(names), 3); len(near) > 0 {
		return strings.Join(near, ", ") + "?"
	}
	return "weft catalogue lists them"
}

// memory is a record's memory as placement sees it: flat at its peak unless it hands memory over.
func (r *record) memory() profile.Profile {
	if !r.Cooperate || r.Persistent >= r.PeakBytes {
		return profile.Flat(r.PeakBytes)
	}
	shape, _ := profile.NamedShape(r.Shape)
	return profile.New(r.Persistent, r.PeakBytes, shape)
}

// kind is what a record is alike with.
func (r *record) kind() estimate.Kind {
	return estimate.Kind{Key: r.Key, Class: classOf(r.Class)}
}

// kindsOf are the kinds of jobs. The mutex is held.
func (b *Box) kindsOf(ids []box.ID) []estimate.Kind {
	var kinds []estimate.Kind
	for _, id := range ids {
		kinds = append(kinds, b.jobs[id].kind())
	}
	return kinds
}
