// Package buffer decides which fetched records are let in.
//
//	fetched ──Admit──▶ admitted ──Release──▶ durable in Temporal ──ledger──▶ committed
//	          refused: the partition is paused, and the record held where it is
//
// Two bounds are taken together, at admission and in offset order: what is not
// yet durable in Temporal (BUFFER_RECORDS, BUFFER_BYTES), and what is not yet
// committed (MAX_UNCOMMITTED). Nothing is asked of a change after that: whatever
// was admitted may always be signalled. Were the second bound taken later, a
// full buffer of changes that wait for it could hold the head of a partition
// behind them, and the watermark could never move.
//
// A change of an account that waits for its signal already gives its place in
// BUFFER_RECORDS back at once ([Buffer.Join]): it costs no signal of its own. It
// still counts towards BUFFER_BYTES and MAX_UNCOMMITTED.
//
// What the Kafka client has fetched and not handed over is outside of this, and
// bounded by its own options: see bridge/consumer.
//
// A partition that was refused is not let in again at once but below 80% of the
// bound, so that pausing and resuming stay rare: a pause makes the client throw
// away what it has prefetched. There it is let in whatever its size, which may
// exceed BUFFER_BYTES by less than that one record.
package buffer
