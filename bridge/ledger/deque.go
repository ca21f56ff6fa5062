package ledger

import "time"

// deque is a queue of entries that can be indexed and cut at both ends. The
// zero value is empty.
type deque struct {
	buf  []entry
	head int
}

func (d *deque) len() int        { return len(d.buf) - d.head }
func (d *deque) at(i int) *entry { return &d.buf[d.head+i] }
func (d *deque) push(e entry)    { d.buf = append(d.buf, e) }
func (d *deque) pop()            { d.buf = d.buf[:len(d.buf)-1] }

// shift removes the first entry. Room at the front is given back once it is
// half of the buffer, so that the cost per entry stays constant, and the memory
// of a backlog goes with it.
func (d *deque) shift() entry {
	e := d.buf[d.head]
	d.head++
	switch {
	case d.head == len(d.buf) && cap(d.buf) <= 1024:
		d.buf, d.head = d.buf[:0], 0
	case d.head*2 >= len(d.buf) && d.head >= 64:
		d.buf, d.head = append([]entry(nil), d.buf[d.head:]...), 0
	}
	return e
}

// oldest remembers the least time of undone entries. It is exact until the
// entry that held it is done; then it is stale, and the next reader counts anew:
// readers come once a second, entries by the thousand.
type oldest struct {
	at    int64 // Unix nanoseconds, 0 for none
	stale bool
}

func (o *oldest) add(at int64) {
	if at != 0 && (o.at == 0 || at < o.at) {
		o.at = at
	}
}

func (o *oldest) remove(at int64) {
	if at == o.at {
		o.stale = true
	}
}

func (a *Assignment) oldestUndone() time.Time {
	if a.oldest.stale {
		a.oldest = oldest{}
		for i := range a.entries.len() {
			if e := a.entries.at(i); !e.done {
				a.oldest.add(e.at)
			}
		}
	}
	if a.oldest.at == 0 {
		return time.Time{}
	}
	return time.Unix(0, a.oldest.at).UTC()
}
