package budget

import "time"

// elapsed returns how much time has passed, by the clock that says more. The
// monotonic one stands still while a machine is suspended, and a share that ended
// in the meantime would look as if it had not; the wall clock may be set back.
func elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}
