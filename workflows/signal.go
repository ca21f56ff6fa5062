package workflows

import (
	"fmt"
	"iter"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// arrived takes the signals that have arrived, one by one.
//
// One that this build cannot decode is a newer process's, and the bridge may have
// counted its changes as done already. The SDK's channels drop such a signal. So
// each is taken as it came, and one that makes no sense panics: the workflow task
// fails, says why, and is tried again until a worker takes it that understands
// the signal. Nothing is lost meanwhile.
func arrived[T any](channel workflow.ReceiveChannel) iter.Seq[T] {
	next := func() (raw converter.RawValue, ok bool) {
		ok = channel.ReceiveAsync(&raw)
		return raw, ok
	}
	return func(yield func(T) bool) {
		for raw, ok := next(); ok; raw, ok = next() {
			var value T
			if raw.Payload() != nil { // somebody may signal by hand, without any
				if err := converter.GetDefaultDataConverter().FromPayload(raw.Payload(), &value); err != nil {
					panic(fmt.Sprintf("signal %q cannot be decoded by this build and waits for a worker that can: %v", channel.Name(), err))
				}
			}
			if !yield(value) {
				return
			}
		}
	}
}
