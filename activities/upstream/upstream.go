package upstream

import (
	"context"
	"time"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Fetcher reads one account. Fetch makes at most one call, and its errors are
// [*Error]; any other error counts as transient. It writes its request within
// [contract.SendWithin] or not at all, as [Client] does: later, the permit may be
// another worker's.
//
// A Fetcher that is not built on net/http calls
// httptrace.ContextClientTrace(ctx).WroteRequest, if set, once its request is on
// its way: until then the call occupies its slot in the budget.
type Fetcher interface {
	Fetch(ctx context.Context, account string) (Response, error)
}

// Response is what upstream says about an account.
type Response struct {
	Status   int           // HTTP status, 0 where there is none
	Body     []byte        // valid JSON in UTF-8; nil if Deleted
	Deleted  bool          // the account does not exist upstream
	Duration time.Duration // from sending to the body's last byte
	// Version says how new the answer is, if upstream does; see [contract.Version].
	Version contract.Version
}

// Error is a call that brought nothing to write.
type Error struct {
	// Class is one of contract's: transient, throttled, denied, refused.
	Class string
	// Reason is one line, without account data and the same for the same fault,
	// "500 Internal Server Error".
	Reason string
	// Status is the HTTP status, 0 if there was none.
	Status int
	// RetryAfter is how long upstream asked to be left alone; 0 if it did not.
	RetryAfter time.Duration
	// Duration is how long the call took.
	Duration time.Duration
	// Err is the cause, for errors.Is; it may hold the account and is not
	// printed.
	Err error
}

// Error returns the reason, prefixed with the class.
func (e *Error) Error() string { return "upstream: " + e.Class + ": " + e.Reason }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
