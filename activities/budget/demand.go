package budget

import "time"

const (
	// memory is for how long a peak counts, up to twice that: long enough to span
	// the pauses of a worker that is busy on and off.
	memory = 5 * time.Second
	// lacking is for how long a worker counts as saturated after somebody had to
	// wait.
	lacking = 2 * time.Second
)

// demand estimates how many calls a second could be used. The zero value has
// seen none.
type demand struct {
	began        time.Time // of the present period
	peak, before int       // most calls under way, just sent, or wanted: in this period and the last
	lackedAt     time.Time
}

func (d *demand) see(now time.Time, calls int) {
	if passed := now.Sub(d.began); passed >= memory {
		d.before = d.peak
		if passed >= 2*memory {
			d.before = 0
		}
		d.began, d.peak = now, 0
	}
	d.peak = max(d.peak, calls)
}

func (d *demand) lack(now time.Time) { d.lackedAt = now }

// value returns the estimate under the present limit. Who lacks says twice what
// it has, so that it finds out in a few steps how much it could use; who does
// not says what it used and a quarter, so that chance alone makes it lack
// seldom.
func (d *demand) value(now time.Time, limit int) int {
	d.see(now, 0)
	peak := max(d.peak, d.before)
	switch {
	case now.Sub(d.lackedAt) < lacking:
		return max(peak, 2*limit)
	case peak > 0:
		return peak + max(1, peak/4)
	}
	return 0
}
