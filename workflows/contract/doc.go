// Package contract is what the bridge and the worker agree on: names, workflow
// IDs, payload types, and the one rule that says when a change is covered.
//
// The two processes are deployed at different times, so every payload here has
// a golden file under testdata: a change that breaks one breaks runs in flight.
// The package imports almost nothing, so that the bridge never links workflow
// or activity code.
//
// # Identity and order of a change
//
// A change is one Kafka record. Its identity is (topic ID, partition, leader
// epoch, offset). Within one topic ID and partition, identities are ordered by
// leader epoch and then by offset: after an unclean election a partition may
// hand out an offset a second time, but never under the same leader epoch
// (KIP-101, KIP-320). A topic that is deleted and created again has a new topic
// ID (KIP-516), so its offsets are never taken for the old ones.
//
// # Time
//
// All instants in payloads are in Temporal's clock as far as the process that
// wrote them could tell; see [Settled] for why that matters.
package contract
