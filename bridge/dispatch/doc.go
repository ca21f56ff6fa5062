// Package dispatch hands changes to Temporal and learns what became of them.
//
// Every account belongs to one lane, a goroutine that does one thing at a time,
// so the changes of an account reach Temporal in order and nothing an account
// does is concurrent with itself. A lane waits for one answer at most and never
// for a workflow.
//
// A change moves through these states:
//
//	        Submit                accepted by a run            run listed it as
//	───────▶ backlog ──▶ batch ────────────────────▶ taken ───────covered──────▶ done
//	           ▲           │ refused for good          │ ▲
//	           │           └──▶ dead letter, done      │ └─ pending: taken by the
//	           │                                       │    run's successor
//	           └──────── run ended without listing it ─┘    (parked: done)
//
// A batch is what one signal carries. It stays as it is until Temporal has
// answered for it, however often it is sent, so that its repetitions are exact.
//
// What belongs to an assignment that was taken away is forgotten in every state,
// the watch of its run included; the new owner follows that.
//
// The runs are authoritative for what is pending, the ledger for what is done;
// what is kept here is only who has taken what, and may be lost with the process.
package dispatch
