package model

// fifo is a queue that reuses its memory.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

// at is the item at a position from the front.
func (q *fifo[T]) at(i int) *T { return &q.items[q.head+i] }

func (q *fifo[T]) push(item T) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, item)
}

// pop removes the front.
func (q *fifo[T]) pop() T {
	var none T
	item := q.items[q.head]
	q.items[q.head] = none
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return item
}
