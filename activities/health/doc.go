// Package health judges whose fault a failed call was, and finds out when it is
// everybody's.
//
//	        5 failures in a row, of at least 2 accounts
//	closed ────────────────────────────────────────────▶ open
//	  ▲                                                    │ one probe per 5 s, for the whole
//	  └──────────── a probe succeeds ◀─────────────────────┘ fleet, granted by the budget
//
// [Monitor] stands in front of the budget, which keeps the breaker's state: with
// a [budget.Fleet] it is one breaker for all workers. While it is open, those
// who ask for a permit wait, and are told [ErrOutage] when their time is up.
// They hand their work back to Temporal, where it waits at no cost and is
// charged to no account.
//
// A Monitor sees the calls of its own process only. That is enough to judge,
// because it errs on the safe side: what it does not know to be an account's own
// fault is nobody's. From the second failure in a row on it has the budget ask
// whether the others know more, so that not each worker needs five of its own.
package health
