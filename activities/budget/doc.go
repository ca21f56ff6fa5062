// Package budget decides when a call to upstream may start.
//
// The life of a permit, seen by the one who asked for it:
//
//	Acquire ──▶ held ──Start──▶ started ──Sent──▶ sent ──(one window later)──▶ free
//	             │  └─Start after MaxPermitAge, or after an outage began: ErrStale ─▶ free
//	             └─Release ─▶ free
//
// Within a process a sliding log (type limiter) keeps the limit: a call that
// was sent counts from the moment it was sent, and a permit that is held or
// started counts as if it were sent right now, because it may be. So whatever
// the delays between the three steps, no sliding second ever holds more than
// the limit. A token bucket would not do: rate plus burst exceeds the rate in
// some second.
//
// [Fleet] is the budget of a worker among others. Its limit is a share that it
// renews with workflow Budget:
//
//	          ┌────────── answer: share, until asked + ShareUse ──────────┐
//	          ▼                                                           │
//	no share ──▶ share ──── ShareUse has passed ────▶ no share, no call   │
//	               │ every 4.5 s and a bit, at once when there is news ───┘
//	               │ (idle no more, throttled, suspicion, outage, upstream is back)
//	               └─ Suspend ─▶ outage: nothing but probes that the answer grants
//
// The workflow is authoritative for who may use how much and for whether
// upstream is out; the Fleet for what it has started.
package budget
