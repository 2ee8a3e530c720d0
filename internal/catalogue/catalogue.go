// Package catalogue says what others measured of training configurations that run alone: steps per second,
// utilisation and memory by model, batch size and GPU model, each figure with its source and licence.
package catalogue

import (
	"cmp"
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"sync"

	"weft.dev/weft/internal/profile"
	"weft.dev/weft/internal/unit"
)

// Entry is one configuration alone on one GPU, as one source measured it. Model and Batch are the source's own names.
type Entry struct {
	Model, Batch string     // Batch is "" where the source states none
	GPU          string     // short name in lower case: "p100", "a100-40gb"; "" where the source states none
	Rate         float64    // steps per second alone; 0 is unknown
	GPUUtil      float64    // share of time with a kernel running, in 0..1; 0 is unknown
	MemUtil      float64    // share of time with memory being read or written, in 0..1; 0 is unknown
	Persistent   unit.Bytes // always held; 0 is unknown and counts as Peak
	Peak         unit.Bytes // most ever held, within an iteration; 0 is unknown
	Shape        string     // a profile.NamedShape of what is held between Persistent and Peak; "" is unknown: flat
	Source       string     // key of the source; docs/catalogue.md says where each was read
	Licence      string     // of the source, by its SPDX name
}

// Profile is the entry's memory, never less than what was measured: flat at the peak where the persistent part or the
// shape is unknown. It is false where the peak is unknown.
func (e Entry) Profile() (profile.Profile, bool) {
	shape, known := profile.NamedShape(e.Shape)
	if !known || e.Persistent == 0 {
		shape = nil
	}
	return profile.New(e.Persistent, e.Peak, shape), e.Peak > 0
}

// figures is the catalogue's own form: figures of four digits, memory in MiB, empty where unknown, sorted by compare.
//
//go:embed catalogue.csv
var figures string

// header names the columns of figures.
const header = "model,batch,gpu,rate,gpu_util,mem_util,persistent_mib,peak_mib,shape,source,licence"

// entries are the rows of figures, parsed once.
var entries = sync.OnceValue(func() []Entry {
	lines := strings.Split(strings.TrimSpace(figures), "\n")[1:]
	list := make([]Entry, len(lines))
	for i, line := range lines {
		f := strings.Split(line, ",")
		list[i] = Entry{
			Model: f[0], Batch: f[1], GPU: f[2], Rate: number(f[3]), GPUUtil: number(f[4]), MemUtil: number(f[5]),
			Persistent: unit.FromMiB(number(f[6])), Peak: unit.FromMiB(number(f[7])), Shape: f[8], Source: f[9], Licence: f[10],
		}
	}
	return list
})

// number reads a figure of the embedded file, which a test holds to be well-formed; an empty one is 0.
func number(s string) float64 {
	if s == "" {
		return 0
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic("catalogue: catalogue.csv: " + err.Error())
	}
	return v
}

// All is every entry in order: by model without regard to case, batch size, GPU, source. The caller owns the list.
func All() []Entry { return slices.Clone(entries()) }

// compare is the order of the catalogue. Batches are ordered by length first: all are whole numbers without leading
// zeros, or empty.
func compare(a, b Entry) int {
	return cmp.Or(
		cmp.Compare(strings.ToLower(a.Model), strings.ToLower(b.Model)), cmp.Compare(a.Model, b.Model),
		cmp.Compare(len(a.Batch), len(b.Batch)), cmp.Compare(a.Batch, b.Batch),
		cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Source, b.Source))
}

// Find is the entry of exactly this model, batch and GPU; the case of gpu does not matter. Where several sources have
// one, it is the first in order of source. It is false where none has. O(entries) time.
func Find(model, batch, gpu string) (Entry, bool) {
	for _, e := range entries() {
		if e.Model == model && e.Batch == batch && strings.EqualFold(e.GPU, gpu) {
			return e, true
		}
	}
	return Entry{}, false
}

// Search is the entries whose "model:batch", GPU or source contains a text in any case, in order. The empty text finds
// all.
func Search(text string) []Entry {
	text = strings.ToLower(text)
	var found []Entry
	for _, e := range entries() {
		if strings.Contains(strings.ToLower(e.Model+":"+e.Batch+"\n"+e.GPU+"\n"+e.Source), text) {
			found = append(found, e)
		}
	}
	return found
}

// memory is the most memory that cards of a GPU model of the catalogue come with, by their makers' data sheets; a K80
// is two GPUs of 12 GiB. What is usable is a little less.
var memory = map[string]unit.Bytes{
	"k80": 12 * unit.GiB, "p100": 16 * unit.GiB, "v100": 32 * unit.GiB, "t4": 16 * unit.GiB,
	"a100": 80 * unit.GiB, "a100-40gb": 40 * unit.GiB,
}

// unknownMemory is what a job on a GPU model that is not in the catalogue may hold: more than any GPU has.
const unknownMemory = unit.TiB

// Default is what to assume of a configuration that is not in the catalogue: it keeps the GPU and its memory busy all
// the time and holds all of it, flat, so that it shares with nobody for whom memory or utilisation decides. Its rate is
// unknown. Who knows the usable memory of the GPU takes the lesser of it and Peak.
func Default(gpu string) Entry {
	gpu = strings.ToLower(gpu)
	peak, known := memory[gpu]
	if !known {
		peak = unknownMemory
	}
	return Entry{GPU: gpu, GPUUtil: 1, MemUtil: 1, Persistent: peak, Peak: peak, Source: "default"}
}

// GPUNamed is the short name of a GPU that its driver calls by a product name: the longest short name that is in it; "" for none.
func GPUNamed(product string) string {
	best := ""
	product = strings.ToLower(strings.ReplaceAll(product, " ", "-"))
	for _, e := range All() {
		if len(e.GPU) > len(best) && strings.Contains(product, e.GPU) {
			best = e.GPU
		}
	}
	return best
}
