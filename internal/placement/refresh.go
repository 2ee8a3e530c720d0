package placement

import "weft.dev/weft/internal/cluster"

// Refresh tells the packer that the problem's interference table, or what Admit depends on, has changed. Who resides
// where stays, even where it would not be allowed any more; what may join where is asked anew. It costs
// O(sets x groups).
func (k *Packer) Refresh() {
	k.p.sets.forget()
	clear(k.ranked)
}

// Rehouse moves one placed worker to another GPU: the fullest that takes it, else an idle one. It changes nothing and
// reports false when there is none. O(log n).
func (k *Packer) Rehouse(w cluster.Worker) bool { return k.RehouseWhere(w, nil) }

// RehouseWhere is Rehouse among the GPUs of a packer made by NewPackerOn that allow accepts; nil accepts all. A worker that must
// be together with others stays on their node; where that one has no place for it, all of them move to another.
func (k *Packer) RehouseWhere(w cluster.Worker, allow func(cluster.GPU) bool) bool {
	k.allow = allow
	defer func() { k.allow = nil }()
	mark := k.overlay.Checkpoint()
	from := k.overlay.Remove(w)
	k.reindex(from)
	to, ok := k.find(w)
	if !ok || to == from {
		k.overlay.Rollback(mark, k.reindex)
		return k.ground != nil && k.ground.together(k.p.Job(w)) > 1 && k.rehouseRun(w)
	}
	k.put(w, to)
	k.overlay.Commit()
	return true
}
