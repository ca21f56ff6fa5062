// Package workflows holds the durable half of Quiesce: what must survive every
// process.
//
// [AccountSync] is one sync of one account: it collects the account's changes,
// has the Sync activity make one upstream call once they have settled, and ends
// by completing (everything covered) or by continuing as new (something is
// left, failed or parked).
//
//	          bridge: signal, else signal-with-start, start delay = rest of D
//	                │
//	                ▼
//	 ┌──── waiting (no workflow task, no slot; plain signals pile up) ◀────────┐
//	 │              │ first pending + D                                        │
//	 │              ▼                                                          │
//	 │      Sync activity ── hand-back: the server retries it later            │
//	 │        │ ok      │ fenced     │ failed                                  │
//	 │        ▼         ▼            ▼                                         │
//	 │   all covered? ─no─────▶ continue as new, backed off ───────────────────┘
//	 │        │ yes                  (pending, covered, failure; parked after
//	 ▼        ▼                       too many failures of its own)
//	woken   complete
//
// The run is authoritative for which changes are pending; the row in the store
// is authoritative for which are covered. The bridge learns both from the event
// that closes the run.
//
// Code here is replayed: it imports the workflow SDK, the contract and pure
// packages only. A change of which commands a run gives, or in which order, goes
// through [workflow.GetVersion], also where it is the last thing that a run does:
// closed runs are replayed, too (`worker histories verify`). What only changes a
// command's input needs none. Recorded histories under testdata are replayed by the
// tests.
package workflows
