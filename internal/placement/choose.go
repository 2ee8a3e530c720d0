package placement

import "weft.dev/weft/internal/cluster"

// Takes says whether a GPU would take a worker of the job: C1..C5 and the classes hold with it. It is for rules that
// choose GPUs themselves and place with AddAt. O(residents) once the set is known.
func (k *Packer) Takes(job int, g cluster.GPU) bool {
	first, _ := k.p.WorkersOf(job)
	kind := k.p.kindOf(first)
	if k.ground != nil {
		return k.admits(job, g) && (k.allow == nil || k.allow(g)) && !k.p.sameJob(k.overlay.Residents(g), first)
	}
	return k.p.sets.join(k.set[g], kind.group) != refused && k.takes(g, first) &&
		!k.p.sameJob(k.overlay.Residents(g), first)
}

// MoveTo moves one placed worker to a GPU, or changes nothing and reports false when that one refuses it. O(log n).
func (k *Packer) MoveTo(w cluster.Worker, g cluster.GPU) bool {
	if !k.Takes(k.p.Job(w), g) {
		return false
	}
	k.reindex(k.overlay.Remove(w))
	k.put(w, g)
	k.overlay.Commit()
	return true
}
