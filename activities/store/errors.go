package store

import (
	"errors"
	"fmt"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
)

var (
	// ErrUnavailable is the store being out, for everybody. The write it comes
	// from may have happened.
	ErrUnavailable = errors.New("store is unavailable")
	// ErrRefused is the store not taking what this account's row holds. Nothing
	// was written, and trying again changes nothing.
	ErrRefused = errors.New("store refuses the row")
)

// Error is why an operation did not succeed. It matches [ErrUnavailable] or
// [ErrRefused], and its cause.
type Error struct {
	Op   string // "read row", "write row"
	Kind error  // ErrUnavailable or ErrRefused
	// Reason is one line without account data, "FailedPrecondition".
	Reason string
	// Err is the cause. Spanner's own text can hold keys and values.
	Err error
}

// Error returns the whole story, account data included; take Reason for what
// must not hold any.
func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: %v: %s", e.Op, e.Kind, e.Reason)
	}
	return fmt.Sprintf("%s: %v: %s: %v", e.Op, e.Kind, e.Reason, e.Err)
}

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }

func refused(op, reason string) *Error { return &Error{Op: op, Kind: ErrRefused, Reason: reason} }

// classify turns an error of the client into an [*Error].
func classify(op string, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) { // the closure's own verdict comes back wrapped
		return e
	}
	code := spanner.ErrCode(err)
	e = &Error{Op: op, Kind: ErrUnavailable, Reason: code.String(), Err: err}
	switch code {
	case codes.InvalidArgument, // a value of the wrong shape, or too large for its column
		codes.OutOfRange,         // a value its type cannot hold
		codes.FailedPrecondition: // a constraint, NOT NULL, a length; or the schema, then for everybody
		e.Kind = ErrRefused
	}
	// Everything else is about the database, the network or our rights, and
	// hits every account alike: Unavailable, DeadlineExceeded, Canceled, Aborted
	// beyond the deadline, PermissionDenied, Unauthenticated, NotFound (database
	// or table), ResourceExhausted, Internal, Unknown.
	return e
}
