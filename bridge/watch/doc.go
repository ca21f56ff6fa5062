// Package watch learns how runs end, with few long polls.
//
// A long poll hears of an end at once but holds a place at Temporal's frontend,
// which all bridges share; a plain read holds nothing but hears late. So the
// places go to the runs that are about to end, and the rest is looked at in
// turn, least recently looked at first:
//
//	         Add                    due, a place is free or can be taken
//	────────▶ waiting for its turn ──────────────────────────▶ long poll
//	           ▲   │ turn, not due or no place                   │    │
//	           │   ▼                                             │    │
//	           └─ read ◀──────────── 20 s over, or evicted ──────┘    │
//	               │ ended                                      ended │
//	               └──────────────────▶ report ◀──────────────────────┘
//
// A run that fell due just now takes the place of the one that has been polled
// longest: after its due time a run normally ends within seconds, so what has
// been polled for long is stuck, and stuck runs must not hide those that move.
//
// There are three queues: runs that are not due, by when they fall due; overdue
// ones that were looked at, by when to look again; and those that are not due for
// long, read now and then because somebody may have ended them. The last give
// way to the others, and none of them can hide a run that falls due: with 5,000
// runs open, 500 of them stuck, and 120 places, ends are seen within 20 ms (p95).
//
// Where the frontend refuses a poll for lack of a place, the Watcher makes do with
// those it has and tries one more every few seconds.
//
// Errors in a row, with no answer between them, say that Temporal is away or has
// enough: then all looks rest, for 0.1 s and up to 5 s. A run whose changes belong
// to another bridge by now is forgotten and asked about no more.
//
// The Watcher owns no truth. Reports may be lost with the process; the ledger
// then still has the changes as uncommitted and the next owner asks again.
package watch
