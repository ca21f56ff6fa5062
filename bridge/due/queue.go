// Package due orders things by when their turn comes.
package due

import (
	"container/heap"
	"time"
)

// Queue hands out items in the order of their times. The zero Queue is empty.
// It is not safe for concurrent use.
type Queue[T any] struct{ items items[T] }

type item[T any] struct {
	at    time.Time
	value T
}

// Push adds value, whose turn comes at at.
func (q *Queue[T]) Push(value T, at time.Time) { heap.Push(&q.items, item[T]{at, value}) }

// Peek returns what comes first without removing it; ok is false for an empty
// queue.
func (q *Queue[T]) Peek() (value T, at time.Time, ok bool) {
	if len(q.items) == 0 {
		return value, at, false
	}
	return q.items[0].value, q.items[0].at, true
}

// Pop removes what comes first.
func (q *Queue[T]) Pop() { heap.Pop(&q.items) }

// Len returns the number of items.
func (q *Queue[T]) Len() int { return len(q.items) }

type items[T any] []item[T]

func (s items[T]) Len() int           { return len(s) }
func (s items[T]) Less(i, j int) bool { return s[i].at.Before(s[j].at) }
func (s items[T]) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *items[T]) Push(x any)        { *s = append(*s, x.(item[T])) }
func (s *items[T]) Pop() any {
	old := *s
	last := old[len(old)-1]
	old[len(old)-1] = item[T]{}
	*s = old[:len(old)-1]
	return last
}
