package covering

// column is a configuration: types, ascending.
type column []int32

// trim is the largest part of a column that a demand can use, itself where that is all of it.
func (c column) trim(demand []int) column {
	var part column
	for i, t := range c {
		if c.repeats(i) < demand[t] {
			if part != nil {
				part = append(part, t)
			}
		} else if part == nil {
			part = append(make(column, 0, len(c)), c[:i]...)
		}
	}
	if part == nil {
		return c
	}
	return part
}

// repeats is how often the type at i occurs before it.
func (c column) repeats(i int) int {
	n := 0
	for n < i && c[i-n-1] == c[i] {
		n++
	}
	return n
}

// key is the column as the key of a map.
func (c column) key() string {
	key := make([]byte, 0, 4*len(c))
	for _, t := range c {
		key = append(key, byte(t), byte(t>>8), byte(t>>16), byte(t>>24))
	}
	return string(key)
}

func (c column) ints() []int {
	list := make([]int, len(c))
	for i, t := range c {
		list[i] = int(t)
	}
	return list
}

func columnOf(config []int) column {
	c := make(column, len(config))
	for i, t := range config {
		c[i] = int32(t)
	}
	return c
}
