// Package budget decides when a call to upstream may start.
//
// The life of a permit, seen by the one who asked for it:
//
//	Acquire ──▶ held ──Start──▶ started ──Sent──▶ sent ──(one window later)──▶ free
//	             │  └─Start after MaxPermitAge: ErrStale ─▶ free
//	             └─Release ─▶ free
//
// [Limiter] is the budget of one process. It keeps a sliding log: a call that
// was sent counts from the moment it was sent, and a permit that is held or
// started counts as if it were sent right now, because it may be. So whatever
// the delays between the three steps, no sliding second ever holds more than
// the rate. A token bucket would not do: rate plus burst exceeds the rate in
// some second.
//
// The Limiter is authoritative for its process only. A budget for a whole fleet
// implements [Budget] as well and its shares are spent the same way.
package budget
