package consumer

import "github.com/quiesce-io/quiesce/bridge/buffer"

// Sink takes admitted changes.
type Sink interface {
	// Submit takes a change over; it never blocks.
	Submit(c buffer.Change)
}
