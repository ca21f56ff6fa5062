// Package store keeps accounts in Spanner: one row per account, and a log of
// the syncs that made it what it is.
//
// Spanner is the authority on what was written, and CalledAt on what is newer:
// a row only ever goes from an older upstream call to a newer one, whatever the
// order in which writers arrive ([Store.Write] is fenced by it). SyncId and
// Attempt let a writer recognise its own commit, when the answer to it was lost.
//
//	Write(called at c, sync s, attempt n), the row as the transaction reads it:
//
//	  no row, or row.CalledAt ≤ c ─────▶ row and log row; written, unchanged, deleted
//	  row.SyncId = s, row.Attempt = n ─▶ nothing; the outcome it had
//	  row.CalledAt > c ────────────────▶ a log row; fenced
//
// Errors are [*Error]: the store is unavailable, whoever's row it is, or it
// refuses what this row holds.
package store
