// Package replay has accounts called again: those of a range of records, or of a
// list. The workflow [contract.Replay] is authoritative for how far a replay has
// come; this package holds the activity that does a slice of it, and what the
// commands need to start and to control one.
//
// The activity goes through the accounts in an order that does not change, a few
// at a time:
//
//	source ──▶ first time in this replay? ──▶ pace ──▶ signal the account's run ──▶ follow it ──▶ served, or parked
//	 list, or records in order of                      (a live sync that waits         │
//	 partition and offset                               takes the replay along)        ▼
//	                                                                              tracker: Next, Ahead, counts
//
// Where it stopped is a place in that order: every account met before it is
// done. So nothing is kept of accounts that are done: a slice that begins in the
// middle reads the records before its place again, to know them. The group's
// offsets are neither read nor written.
//
// An account that was signalled and not seen to end, because the process died,
// is looked at before it is signalled again: a run that closed says which
// replays it served. That spares a run and gives the report the outcome; that it
// is not called twice rests on the worker, which makes no call for a replay if
// the row is of one made since the replay began.
package replay
