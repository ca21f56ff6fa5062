// Package ledger keeps account of which records of an assigned partition are
// done, and therefore which offset may be committed.
//
//	See ──▶ tracked ──Done──▶ done ──all before it done──▶ below the watermark ──Committed──▶ forgotten
//	              │
//	              └─ Drop (revoked, lost): the whole assignment; later Done calls do nothing
//
// The ledger is the only authority on the watermark. State belongs to an
// assignment, not to a partition: a partition that leaves and comes back has a
// new [Assignment], so a completion that was meant for the old one cannot touch
// it, and whoever drops the old one cannot drop the new.
//
// The watermark is the offset after the last record of the contiguous done
// prefix. Records are those that were seen: offsets that compaction removed or
// that belong to aborted transactions never come, so a gap is normal, and an
// offset that follows no seen record is never committed.
//
// What is done beyond the watermark travels in the commit's metadata (see
// [Metadata]), so that the next owner need not do it again.
package ledger
