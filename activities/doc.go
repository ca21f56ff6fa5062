// Package activities holds Sync, the activity of an account's run: it waits
// out what is left of the settle delay, makes at most one upstream call, and
// writes what it learned.
//
//	NotBefore far away ───────────────────────────────▶ deferred, until then
//	row check ── the row covers what is settled ──────▶ skipped
//	   │     ├── nothing is settled yet ──────────────▶ deferred, until it is
//	   │     ├── the row was called in the future ────▶ deferred, until then
//	   │     └── store out ───────────────────────────▶ deferred, a few seconds
//	permit ──── none in PERMIT_WAIT: overload, outage ▶ deferred, a few seconds
//	   │
//	call ────── failed ───────────────────────────────▶ failed (class, charged or not)
//	   │
//	answer ──── older than a change, or than the row ─▶ failed, unsettled
//	   │
//	write ───── store out, row refused ───────────────▶ failed
//	   └──────────────────────────────────────────────▶ written, unchanged, deleted, fenced
//
// Deferred means handed back: Temporal dispatches the activity again after the
// delay, no slot is held meanwhile, and it says nothing about the account. A panic
// anywhere is a failure like that of a call.
//
// The activity is what guarantees the settle delay, whoever started the run and
// however early it was dispatched. Its clock is Temporal's (see [clock]), never
// the worker's.
//
// RecordDiscard, the other activity, puts on record what an operator gave up.
//
// Upstream and store are interfaces: a team whose system of record or database
// is another builds a worker of its own around [New]. Budget and breaker come
// as one [health.Monitor].
package activities
