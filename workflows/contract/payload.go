package contract

import (
	"fmt"
	"time"
)

// Names that are registered with Temporal. They stand in histories: renaming
// one breaks runs in flight.
const (
	// AccountSync is the workflow type of an account's run.
	AccountSync = "AccountSync"
	// ParkedAccountSync is the type that a parked account's runs go by. It is
	// the same workflow; the name of its own makes parked accounts a filter in
	// Temporal's UI without a custom search attribute to register.
	ParkedAccountSync = "ParkedAccountSync"
	// Sync is the activity that makes one upstream call and writes the row.
	Sync = "Sync"

	// SignalChanges carries a [Changes] payload.
	SignalChanges = "changes"
	// SignalRetry wakes a parked account; no payload.
	SignalRetry = "retry"

	// MemoAccount is the memo field that holds the account key.
	MemoAccount = "account"
)

// Types of the application errors that Sync returns.
const (
	// ErrorDeferred is a hand-back: nothing went wrong, come again after the
	// error's next retry delay. The server retries it without end.
	ErrorDeferred = "Deferred"
	// ErrorFailed is a failed attempt. It is not retried by the server; its
	// details are one [FailedAttempt].
	ErrorFailed = "Failed"
)

// Duration is a time.Duration that stands in payloads the way people write it,
// "1m30s", so that a history can be read.
type Duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("duration: %w", err)
	}
	*d = Duration(parsed)
	return nil
}

// Settings are the rules under which an account's changes are handled. They
// travel with every signal, so that a history shows what applied, and the
// newest win, so that a change of configuration reaches accounts that are never
// idle.
type Settings struct {
	// Settle is S: the longest time upstream needs until a change can be read,
	// clock skew included.
	Settle Duration `json:"settle"`
	// Delay is D ≥ S: the call is made this long after the first pending change.
	Delay Duration `json:"delay"`
	// AttemptLease bounds one attempt of Sync, from start to close.
	AttemptLease Duration `json:"attempt_lease"`
	// Heartbeat is how long an attempt may stay silent before its worker is
	// taken for dead.
	Heartbeat Duration `json:"heartbeat"`
	// ParkAfter is how many failures in a row park an account.
	ParkAfter int `json:"park_after"`
}

// DefaultSettings are the settings of a bridge with the default configuration. A run
// that nobody gave any lives by them: `worker parked retry`, say, can start one
// when the account has just recovered, and a replay can join it.
func DefaultSettings() Settings {
	return Settings{
		Settle: Duration(21 * time.Second), Delay: Duration(30 * time.Second),
		AttemptLease: Duration(29250 * time.Millisecond), Heartbeat: Duration(10 * time.Second), ParkAfter: 5,
	}
}

// OrDefault returns s, or [DefaultSettings] where there are none.
func (s Settings) OrDefault() Settings {
	if s == (Settings{}) {
		return DefaultSettings()
	}
	return s
}

// Changes is the payload of [SignalChanges].
type Changes struct {
	Ranges   []Range  `json:"ranges"`
	Settings Settings `json:"settings"`
}

// MaxBackoff is the longest wait between two failures of an account that is not
// parked. It is part of the account lease.
const MaxBackoff = 30 * time.Second

// Failure is what an account carries from run to run while it keeps failing.
type Failure struct {
	// Count is how many failures in a row were the account's own. The first
	// counts provisionally; a later one counts only if other accounts
	// succeeded in between, so that an outage parks nobody.
	Count int `json:"count"`
	// Tries is how many attempts in a row have failed, whoever's fault.
	Tries int `json:"tries"`
	// Lost is how many of them were of [ClassLease].
	Lost int `json:"lost,omitempty"`
	// Since and Last are when the first and the latest of them failed.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	// ChargedAt is when the latest failure that is in Count happened.
	ChargedAt time.Time `json:"charged_at,omitzero"`
	// Class is the [FailedAttempt] class of the latest.
	Class string `json:"class"`
	// Reason is the latest error, in one line, without account data.
	Reason string `json:"reason"`
	// Parked is set once the account has been set aside.
	Parked bool `json:"parked,omitempty"`
	// ParkedTries is how often it was tried since; it drives the backoff.
	ParkedTries int `json:"parked_tries,omitempty"`
}

// AccountSyncInput is the input of a run. A run that the bridge starts has
// Account and Settings only: its changes come with the signal that started it.
type AccountSyncInput struct {
	Account string `json:"account"`
	// Pending are the changes that no call has covered yet.
	Pending []Range `json:"pending,omitempty"`
	// Covered are the changes that the previous run in the chain covered. The
	// bridge reads them from the event by which that run continued.
	Covered  []Range  `json:"covered,omitempty"`
	Failure  *Failure `json:"failure,omitempty"`
	Settings Settings `json:"settings"`
	// Replays are the replays that still want a call, Replayed those that the
	// previous run served.
	Replays  []ReplayRequest `json:"replays,omitempty"`
	Replayed *Replayed       `json:"replayed,omitempty"`
}

// Parked reports whether a run with this input is that of a parked account.
func (in AccountSyncInput) Parked() bool { return in.Failure != nil && in.Failure.Parked }

// AccountSyncResult is the result of a run that completed.
type AccountSyncResult struct {
	// CalledAt is when the call started that the covered changes rest on.
	CalledAt time.Time `json:"called_at"`
	Covered  []Range   `json:"covered"`
	Outcome  Outcome   `json:"outcome"`
	Replayed *Replayed `json:"replayed,omitempty"`
}

// Outcome says what a sync did.
type Outcome string

// Outcomes of a sync.
const (
	OutcomeWritten   Outcome = "written"   // called, row written
	OutcomeUnchanged Outcome = "unchanged" // called, payload as before
	OutcomeDeleted   Outcome = "deleted"   // called, account is gone upstream
	OutcomeSkipped   Outcome = "skipped"   // no call: the row covers it already
	OutcomeFenced    Outcome = "fenced"    // called, but a newer call had written
	OutcomeUnsettled Outcome = "unsettled" // called, but the answer is known to be too old; in the log only
	OutcomeDiscarded Outcome = "discarded" // no call: an operator gave the changes up
)

// SyncInput is the input of [Sync].
type SyncInput struct {
	Account string `json:"account"`
	// Pending are the changes known when the attempt was scheduled.
	Pending []Range `json:"pending"`
	// NotBefore is the earliest time at which the call may start.
	NotBefore time.Time `json:"not_before"`
	// LastFailure is when the latest failure that was counted happened; zero for
	// none. A new one is charged if others have succeeded since.
	LastFailure time.Time `json:"last_failure,omitzero"`
	// Tries is how many attempts in a row have failed before this one.
	Tries int `json:"tries,omitempty"`
	// Parked says that the account has been set aside: that it fails again says
	// nothing about anybody else.
	Parked bool `json:"parked,omitempty"`
	// ReplayID names the replays that asked for the call, see [ReplayIDs]. With
	// one it is made whatever the row covers, and Pending may be empty; but the
	// row of a call at or after ReplaySince serves them as well, see [Since].
	ReplayID    string    `json:"replay_id,omitempty"`
	ReplaySince time.Time `json:"replay_since,omitzero"`
	Settings    Settings  `json:"settings"`
}

// SyncResult is the result of [Sync].
type SyncResult struct {
	Outcome Outcome `json:"outcome"`
	// CalledAt is the call's start, in Temporal's clock; the row's where the
	// call was skipped.
	CalledAt time.Time `json:"called_at"`
	// Through is what the row accounted for before this sync: redelivered
	// changes at or below it are covered whatever their time.
	Through []Through `json:"through,omitempty"`
	// Version is that of the response, or the row's where the call was skipped;
	// zero where upstream has none.
	Version Version `json:"version,omitzero"`
	// Payload is what the call did to the payload. Only of calls that a replay
	// asked for.
	Payload *PayloadChange `json:"payload,omitempty"`
}

// Classes of a failed attempt.
const (
	// ClassTransient may pass: 5xx, timeouts, resets.
	ClassTransient = "transient"
	// ClassThrottled is upstream asking for fewer calls: 429, 503.
	ClassThrottled = "throttled"
	// ClassDenied speaks of the caller rather than of the account: 401, 403, 407,
	// redirects, pages where data should be.
	ClassDenied = "denied"
	// ClassRefused will not pass by itself: other 4xx, a malformed or oversized
	// body, a row that the store refuses.
	ClassRefused = "refused"
	// ClassUnsettled is an answer that upstream itself says is older than a change
	// that it should have settled.
	ClassUnsettled = "unsettled"
	// ClassLease is an attempt that outlived its lease or its worker, or ended
	// without a verdict.
	ClassLease = "lease"
)

// FailedAttempt is the detail of an [ErrorFailed].
type FailedAttempt struct {
	Class  string    `json:"class"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	// RetryAfter is how long upstream asked to be left alone.
	RetryAfter Duration `json:"retry_after,omitempty"`
	// Charged says that the failure is the account's own: others succeeded
	// since its previous one.
	Charged bool `json:"charged"`
}
