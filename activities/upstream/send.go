package upstream

import (
	"context"
	"errors"
	"net/http/httptrace"
	"time"
)

var errUnsent = errors.New("not connected in time")

// sendWithin returns a context that ends with the cause errUnsent if a request has
// not been written by then: what is permitted now may be somebody else's to call
// when a connection comes about at last. Call stop when the request has ended.
func sendWithin(ctx context.Context, limit time.Duration) (limited context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(errUnsent) })
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { timer.Stop() }})
	return ctx, func() { timer.Stop(); cancel(nil) }
}
