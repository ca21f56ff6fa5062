// Package health judges whose fault a failed call was, and stops calling while
// it is everybody's.
//
//	        5 failures in a row, of at least 2 accounts
//	closed ────────────────────────────────────────────▶ open
//	  ▲                                                    │ one probe per 5 s (jittered),
//	  └──────────── any success ◀──────────────────────────┘ granted by the budget as well
//
// [Monitor] stands in front of the budget: while it is open, those who ask for
// a permit wait, and are told [ErrOutage] when their time is up. They hand
// their work back to Temporal, where it waits at no cost and is charged to no
// account.
//
// A Monitor sees the calls of its own process only. That is enough, because it
// errs on the safe side: what it does not know to be an account's own fault is
// nobody's, and each process finds out about an outage with five calls.
package health
