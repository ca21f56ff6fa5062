package contract

import (
	"slices"
	"strings"
	"time"
)

// Names of a replay that are registered with Temporal.
const (
	// Replay is the workflow type of a replay.
	Replay = "Replay"
	// ReplayAccounts is the activity that signals the accounts of a replay, a
	// slice at a time. Bridges host it, on [ReplayTaskQueue]: it reads Kafka.
	ReplayAccounts = "ReplayAccounts"
	// SignalReplay asks an account's run for a call whatever the row says; its
	// payload is a [ReplayRequest].
	SignalReplay = "replay"
	// SignalPause and SignalResume go to a replay; no payload.
	SignalPause  = "pause"
	SignalResume = "resume"
	// QueryReplay asks a replay for its [ReplayState].
	QueryReplay = "state"
)

// MaxReplayIDBytes is the longest ID of a replay.
const MaxReplayIDBytes = 32

// ReplayWorkflowID returns the workflow ID of a replay.
func ReplayWorkflowID(pipeline, id string) string { return ReplayWorkflowPrefix(pipeline) + id }

// ReplayWorkflowPrefix is what the IDs of all replays of a pipeline begin with.
func ReplayWorkflowPrefix(pipeline string) string { return pipeline + "/replay/" }

// ReplayTaskQueue is the queue that bridges poll for [ReplayAccounts], given the
// one that workers poll.
func ReplayTaskQueue(queue string) string { return queue + "-replay" }

// ReplayRequest is the payload of [SignalReplay].
type ReplayRequest struct {
	ID       string `json:"id"`
	Operator string `json:"operator"`
	// Since is when the replay began, in Temporal's clock. A call since then
	// serves it, whoever asked for that call. Zero, as bridges of before say:
	// only a call of its own does.
	Since time.Time `json:"since,omitzero"`
}

// Since returns from when on a call serves all of the requests; zero where one
// of them insists on a call of its own.
func Since(requests []ReplayRequest) time.Time {
	var latest time.Time
	for _, r := range requests {
		if r.Since.IsZero() {
			return time.Time{}
		}
		if r.Since.After(latest) {
			latest = r.Since
		}
	}
	return latest
}

// Replayed says which replays a run's call served.
type Replayed struct {
	IDs     []string `json:"ids"`
	Outcome Outcome  `json:"outcome"`
	// Payload is what the call did to the payload; nil where there was none, or
	// a worker of before made it.
	Payload *PayloadChange `json:"payload,omitempty"`
}

// HashDigits is how much of a payload's hash enters Temporal: enough to tell
// payloads apart and to find the whole hash in the sync log.
const HashDigits = 12

// PayloadChange are the first [HashDigits] of a payload's hash before and after a
// call; "" for none.
type PayloadChange struct {
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Serves reports whether the replay is among those that were served; a nil r
// served none.
func (r *Replayed) Serves(id string) bool { return r != nil && slices.Contains(r.IDs, id) }

// maxReplayIDs is what the sync log's column ReplayId holds.
const maxReplayIDs = 64

// ReplayIDsFull is the length from which on [ReplayIDs] may have left out an ID.
const ReplayIDsFull = maxReplayIDs - MaxReplayIDBytes

// ReplayIDs names the replays of a call, separated by commas, up to the first that
// does not fit the sync log's column; "" for a call that no replay asked for.
func ReplayIDs(requests []ReplayRequest) string {
	var ids []string
	length := 0
	for _, r := range requests {
		if length += len(r.ID) + 1; length > maxReplayIDs+1 {
			break
		}
		ids = append(ids, r.ID)
	}
	return strings.Join(ids, ",")
}

// ReplayRange are the records of one partition that a replay reads.
type ReplayRange struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"` // first offset
	To        int64  `json:"to"`   // the offset after the last
}

// ReplayInput is the input of [Replay] and of [ReplayAccounts]. It has Accounts or
// Ranges.
type ReplayInput struct {
	ID       string `json:"id"`
	Operator string `json:"operator"`
	Reason   string `json:"reason"`
	// What was asked for, in words.
	What     string        `json:"what"`
	Accounts []string      `json:"accounts,omitempty"`
	Ranges   []ReplayRange `json:"ranges,omitempty"`
	// MaxPerSecond bounds how many accounts are begun in a second; 0: no bound
	// but the number in flight.
	MaxPerSecond float64 `json:"max_per_second,omitempty"`
	// InFlight is how many accounts are under way at a time. Few, so that live
	// changes find short queues.
	InFlight int `json:"in_flight"`
	// Began is when the replay began, in Temporal's clock; the workflow sets it.
	Began time.Time `json:"began,omitzero"`
	// Paused and Progress are the state that goes from run to run.
	Paused   bool           `json:"paused,omitempty"`
	Progress ReplayProgress `json:"progress,omitzero"`
	// Again says that a slice has begun before, whatever Progress says: accounts
	// may have been asked.
	Again bool `json:"again,omitempty"`
}

// ReplayCursor is a place in a replay: an index into Accounts, or an offset in
// one of Ranges.
type ReplayCursor struct {
	Range  int   `json:"range,omitempty"`
	Offset int64 `json:"offset"`
}

// Before reports whether c comes before d.
func (c ReplayCursor) Before(d ReplayCursor) bool {
	return c.Range < d.Range || c.Range == d.Range && c.Offset < d.Offset
}

// ReplayProgress is how far a replay has come. It is what [ReplayAccounts]
// returns, heartbeats and begins with.
type ReplayProgress struct {
	// Next is the first place whose account is not known to be done: all before
	// it are.
	Next ReplayCursor `json:"next"`
	// Ahead are places behind Next that are done already.
	Ahead []ReplayCursor `json:"ahead,omitempty"`
	// WaitsFor is the account at Next while no account is begun until it is done:
	// there are [MaxReplayAhead] places Ahead.
	WaitsFor string       `json:"waits_for,omitempty"`
	Complete bool         `json:"complete,omitempty"`
	Counts   ReplayCounts `json:"counts"`
	// Changed names some of the accounts in Counts.Changed: the first
	// [MaxChangesNamed] of them.
	Changed []ReplayChange `json:"changed,omitempty"`
}

// MaxReplayAhead bounds Ahead, but for the accounts under way. A place takes 45
// bytes of JSON at most, with a range of five digits and an offset of 19: some
// 450 kB together, of the 2 MB that Temporal takes as one payload. An input may
// have 1 MB of accounts besides, and places of 20 bytes then.
const MaxReplayAhead = 10_000

// MaxChangesNamed bounds what a replay carries along in heartbeats and history.
const MaxChangesNamed = 20

// ReplayChange is an account whose payload a replay found to be another.
type ReplayChange struct {
	Account string `json:"account"`
	PayloadChange
}

// ReplayCounts is the report of a replay.
type ReplayCounts struct {
	Synced    int `json:"synced"`    // accounts called and written
	Unchanged int `json:"unchanged"` // of these: the payload's hash is what it was
	Changed   int `json:"changed"`   // of these: it is another, or the account is gone upstream
	Fresh     int `json:"fresh"`     // accounts that had been read since the replay began: not called again
	Parked    int `json:"parked"`    // accounts that failed; they are retried on their own
	Invalid   int `json:"invalid"`   // records without a usable account key
}

// Accounts is how many accounts are done.
func (c ReplayCounts) Accounts() int { return c.Synced + c.Fresh + c.Parked }

// ReplayState answers [QueryReplay], and is the result of [Replay].
type ReplayState struct {
	ID       string         `json:"id"`
	Operator string         `json:"operator"`
	Reason   string         `json:"reason"`
	What     string         `json:"what"`
	Began    time.Time      `json:"began,omitzero"`
	Accounts int            `json:"accounts,omitempty"` // how many were named
	Ranges   []ReplayRange  `json:"ranges,omitempty"`
	Paused   bool           `json:"paused,omitempty"`
	Progress ReplayProgress `json:"progress"`
}

// Fraction returns how much of the replay is done, from 0 to 1, counted in
// accounts or in offsets.
func (s ReplayState) Fraction() float64 {
	next := s.Progress.Next
	if s.Progress.Complete {
		return 1
	}
	if len(s.Ranges) == 0 {
		return float64(next.Offset) / float64(max(1, s.Accounts))
	}
	var done, total int64
	for i, r := range s.Ranges {
		total += r.To - r.From
		switch {
		case i < next.Range:
			done += r.To - r.From
		case i == next.Range:
			done += min(max(0, next.Offset-r.From), r.To-r.From)
		}
	}
	return float64(done) / float64(max(1, total))
}
