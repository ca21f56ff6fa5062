// Package consumer is the bridge's Kafka side: a group member that fetches,
// admits, commits and dead-letters.
//
//	poll ──▶ intake ──▶ held per partition ──admission──▶ Sink (dispatch)
//	                         │ no room: partition paused      │ Done
//	                         ▼                                ▼
//	                    dead letters ──acked, Done──▶ ledger ──▶ committer
//
// # Who owns what
//
// The poll loop alone admits; it blocks rebalances from a poll until what was
// polled is admitted or held, which takes no I/O. The ledger alone says what may
// be committed. One committer at a time talks to the group coordinator, so a
// commit cannot overtake another. The callbacks of the group client create
// assignments (on assign, with the committed offsets and their metadata) and
// end them: revoked ones are committed first, lost ones never are.
//
// # Stopped partitions
//
// An offset that the broker does not have is never skipped by itself, and with
// BAD_RECORD=stop neither is a bad record: that partition stops, its status and
// the log say with which command it resumes, and the others go on.
package consumer
