// Package health judges whose fault a failed call was, and finds out when it is
// everybody's.
//
//	        a row of failures, of at least 2 accounts: 10 in a second (denied:
//	        at once), or 5 in five seconds; 25 where some calls succeed
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
// An upstream that fails in part, one bad replica among several, say, is not out:
// a success that ends a row of failures of several accounts tells so, and from
// then on chance alone explains most rows. Calls go on at the full budget until
// the row is one that it does not explain.
//
// A Monitor sees the calls of its own process only. That is enough to judge,
// because it errs on the safe side: what it does not know to be an account's own
// fault is nobody's. Where the trouble is the process's own, the budget knows better:
// it weighs the opening against what the other workers' calls met. Well before it has proof it has the budget ask whether the others
// know more, so that not each worker needs proof of its own.
package health
