package policy

import "math/bits"

// consolidatedBuckets sorts items (nodes, GPUs) by a small level (how much they have free) and finds the item of
// lowest index at a level: a bit set per level, allocated when first used, with a hint where its first bit is.
type consolidatedBuckets struct {
	items int
	sets  [][]uint64
	first []int32 // no bit of sets[level] is set in a word before first[level]
	size  []int32 // number of items at each level
}

func newConsolidatedBuckets(items, levels int) consolidatedBuckets {
	return consolidatedBuckets{items: items, sets: make([][]uint64, levels), first: make([]int32, levels),
		size: make([]int32, levels)}
}

func (b *consolidatedBuckets) add(level, item int) {
	if b.sets[level] == nil {
		b.sets[level] = make([]uint64, (b.items+63)/64)
	}
	word := item / 64
	if b.size[level] == 0 || int32(word) < b.first[level] {
		b.first[level] = int32(word)
	}
	b.sets[level][word] |= 1 << (item % 64)
	b.size[level]++
}

func (b *consolidatedBuckets) remove(level, item int) {
	b.sets[level][item/64] &^= 1 << (item % 64)
	b.size[level]--
}

// next is the item of lowest index >= from at a level, or -1.
func (b *consolidatedBuckets) next(level, from int) int {
	if b.size[level] == 0 || from >= b.items {
		return -1
	}
	set, word := b.sets[level], from/64
	mask := ^uint64(0) << (from % 64)
	if hint := int(b.first[level]); hint > word {
		word, mask = hint, ^uint64(0)
	}
	fromFirst := word == int(b.first[level]) && mask == ^uint64(0)
	for ; word < len(set); word++ {
		if rest := set[word] & mask; rest != 0 {
			if fromFirst {
				b.first[level] = int32(word)
			}
			return word*64 + bits.TrailingZeros64(rest)
		}
		mask = ^uint64(0)
	}
	return -1
}
