package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/bridge/dispatch"
	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/bridge/where"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Cause is what the oldest uncommitted change waits for.
type Cause string

// Causes.
const (
	CauseNone      Cause = "none"              // nothing is uncommitted
	CauseSignal    Cause = "signal"            // its signal is about to be sent
	CauseTemporal  Cause = "temporal"          // Temporal does not take signals
	CauseSettling  Cause = "settling"          // its settle delay, or a backoff of nobody's fault
	CauseQueue     Cause = "queue"             // a worker's slot
	CausePermits   Cause = "permits"           // a permit: the budget is used up, or paused
	CauseCall      Cause = "call"              // a worker has it in hand
	CauseUpstream  Cause = "upstream_out"      // upstream, or the store, is out for everybody
	CauseAccount   Cause = "account_failing"   // this account keeps failing
	CauseWorkers   Cause = "workers_absent"    // no worker asks for work
	CauseRun       Cause = "run_stuck"         // this run makes no progress
	CauseEnd       Cause = "end_unseen"        // its run has ended; the bridge is about to see it
	CauseLetter    Cause = "dead_letter"       // the dead-letter topic has not taken it
	CausePartition Cause = "partition_stopped" // its partition waits for an operator
	CauseClock     Cause = "clock_off"         // clocks differ: nothing is admitted, or called
	CauseUnknown   Cause = "unknown"           // it could not be found out in time
)

// Oldest is the oldest change that is not done, and why. Account and run stand
// in the status and in the log, never in a metric.
type Oldest struct {
	Seconds float64 `json:"seconds"`
	// Since is its change time; for one that was not admitted, when its cause was
	// first seen.
	Since      time.Time `json:"since,omitzero"`
	Cause      Cause     `json:"cause"`
	Detail     string    `json:"detail,omitempty"`
	Record     string    `json:"record,omitempty"` // TOPIC/PARTITION/OFFSET, as `bridge where` takes it
	Account    string    `json:"account,omitempty"`
	WorkflowID string    `json:"workflow_id,omitempty"`
	RunID      string    `json:"run_id,omitempty"`
	// Link is the run's page, as a path below Temporal's UI.
	Link string `json:"link,omitempty"`
}

const (
	// diagnoseEvery is how often the cause is looked into; diagnoseTimeout bounds
	// that.
	diagnoseEvery   = 5 * time.Second
	diagnoseTimeout = 4 * time.Second
	// absentAfter is how long after the last poll workers count as absent: a poll
	// lasts a minute at most.
	absentAfter = 75 * time.Second
	// stuckTask is the attempt of a workflow task from which on its run counts as
	// stuck: it keeps failing, whoever takes it.
	stuckTask = 3
	// alarmEvery is how often the log repeats that a change is overdue.
	alarmEvery = time.Minute
)

// diagnose keeps finding out what the oldest uncommitted change waits for, and
// raises the alarm for one that is older than the account lease.
func (b *Bridge) diagnose(ctx context.Context) error {
	ticker := time.NewTicker(diagnoseEvery)
	defer ticker.Stop()
	var alarmed time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		limited, cancel := context.WithTimeout(ctx, diagnoseTimeout)
		oldest := b.findOldest(limited)
		cancel()
		now := time.Now()
		b.mu.Lock()
		oldest = oldest.since(b.oldest, now)
		b.oldest = oldest
		b.mu.Unlock()
		b.deps.Metrics.Gauge("bridge.oldest_uncommitted_seconds", oldest.Seconds, "cause:"+string(oldest.Cause))
		if limit := b.config.Settle.Delay + b.config.Lease.Account().Lease(); oldest.Seconds > limit.Seconds() && now.Sub(alarmed) >= alarmEvery {
			alarmed = now
			b.deps.Logger.Error("the oldest change is uncommitted for longer than its settle delay and the account lease",
				"age", time.Duration(oldest.Seconds*float64(time.Second)).Round(time.Second), "limit", limit,
				"cause", oldest.Cause, "detail", oldest.Detail, "record", oldest.Record,
				"account", oldest.Account, "workflow", oldest.WorkflowID, "run", oldest.RunID, "link", oldest.Link)
		}
	}
}

// since gives what was not admitted an age, which nobody knows: at least that of
// its cause.
func (o Oldest) since(before Oldest, now time.Time) Oldest {
	if !o.Since.IsZero() || o.Cause == CauseNone {
		return o
	}
	o.Since = now
	if before.Cause == o.Cause && !before.Since.IsZero() {
		o.Since = before.Since
	}
	o.Seconds = now.Sub(o.Since).Seconds()
	return o
}

func (b *Bridge) findOldest(ctx context.Context) Oldest {
	consumer := b.consumer.Status()
	now := time.Now()
	if consumer.OldestUncommitted.IsZero() {
		return b.nothingOld(consumer)
	}
	o := Oldest{Since: consumer.OldestUncommitted, Seconds: max(0, now.Sub(consumer.OldestUncommitted).Seconds())}
	place, found := b.dispatch.Oldest(ctx)
	// What is older than anything the lanes have is a record that never gets to
	// them.
	if !found || place.Time.After(o.Since) {
		o.Cause, o.Detail = unsignalled(consumer, o.Since, ctx.Err() != nil, b.dispatch.Status().LastError)
		return o
	}
	o.Record = fmt.Sprintf("%s/%d", place.Source, place.Position.Offset)
	o.Account, o.WorkflowID, o.RunID = place.Account, place.WorkflowID, place.RunID
	if place.RunID != "" {
		o.Link = where.Link(b.deps.Namespace, place.WorkflowID, place.RunID)
	}
	o.Cause, o.Detail = b.explain(ctx, place, now)
	return o
}

// nothingOld says why nothing is under way although something was fetched.
func (b *Bridge) nothingOld(s consumer.Status) Oldest {
	held := 0
	for _, p := range s.Partitions {
		held += p.Held
	}
	switch {
	case held > 0 && !b.clock.Agrees():
		return Oldest{Cause: CauseClock, Detail: b.clock.String()}
	case s.StoppedPartitions > 0:
		return Oldest{Cause: CausePartition, Detail: stoppedReason(s)}
	}
	return Oldest{Cause: CauseNone}
}

// unsignalled explains a change that is not in the lanes, or not as far as these
// have told: late says that one of them did not answer, lastError what Temporal
// has told them.
func unsignalled(s consumer.Status, since time.Time, late bool, lastError string) (Cause, string) {
	for _, p := range s.Partitions {
		if p.OldestUncommitted.Equal(since) && p.Stopped != "" {
			return CausePartition, p.Stopped
		}
	}
	switch {
	case s.DeadLettersPending > 0:
		return CauseLetter, fmt.Sprintf("%d dead letters are not accepted yet", s.DeadLettersPending)
	case late && lastError != "":
		return CauseTemporal, lastError
	case late:
		return CauseUnknown, "the lanes did not answer in time"
	}
	return CauseUnknown, "it has just been done, or just come"
}

func stoppedReason(s consumer.Status) string {
	for _, p := range s.Partitions {
		if p.Stopped != "" {
			return p.Stopped
		}
	}
	return ""
}

// explain says what a change waits for that a lane has.
func (b *Bridge) explain(ctx context.Context, p dispatch.Place, now time.Time) (Cause, string) {
	if p.RunID == "" {
		if p.Err != "" {
			return CauseTemporal, p.Err
		}
		return CauseSignal, ""
	}
	if p.Due.IsZero() { // how its run began is about to be read
		if p.Err != "" {
			return CauseTemporal, p.Err
		}
		return CauseSignal, "a run has taken it just now"
	}
	failing, why := failure(p.Failure)
	if now.Before(p.Due) {
		if failing != "" {
			return failing, fmt.Sprintf("%s; next try at %s", why, p.Due.Format(time.RFC3339))
		}
		return CauseSettling, "until " + p.Due.Format(time.RFC3339)
	}
	state, err := b.runs.Describe(ctx, p.WorkflowID, p.RunID)
	switch {
	case errors.Is(err, run.ErrGone), err == nil && !state.Open:
		return CauseEnd, ""
	case err != nil:
		return CauseTemporal, err.Error()
	}
	a := state.Activity
	inHand := a != nil && !a.Started.IsZero()
	if inHand {
		if held := now.Sub(a.Started); held > b.config.Lease.Account().Attempt.Lease()+absentAfter {
			return CauseRun, fmt.Sprintf("its attempt began %s ago and has not ended", held.Round(time.Second))
		}
	} else if absent, why := b.absent(ctx, state.TaskQueue, now); absent != "" {
		return absent, why
	}
	if a != nil && a.LastFailureType == contract.ErrorDeferred {
		// One that a worker has in hand again waits there for the same, unless
		// that was only time.
		if cause, why := handedBack(a.LastFailure); !inHand || cause != CauseSettling && cause != CauseQueue {
			return cause, why
		}
	}
	overdue := now.Sub(p.Due)
	switch {
	case state.TaskAttempt >= stuckTask:
		return CauseRun, fmt.Sprintf("its workflow task is at attempt %d; see `worker histories verify`", state.TaskAttempt)
	case failing != "":
		return failing, why
	case inHand:
		return CauseCall, ""
	case a == nil && overdue > b.config.Lease.Account().Lease():
		return CauseRun, fmt.Sprintf("due for %s, workers ask for work, and it has not begun", overdue.Round(time.Second))
	}
	return CauseQueue, ""
}

// absent reports whether nobody asks the run's task queue for work. That is the
// queue the run was started with, which need not be the one that is configured
// now.
func (b *Bridge) absent(ctx context.Context, queue string, now time.Time) (Cause, string) {
	polled, err := b.runs.LastPoll(ctx, queue)
	switch {
	case err != nil:
		return CauseTemporal, err.Error()
	case polled.IsZero():
		return CauseWorkers, "no worker has asked task queue " + queue + " for work lately"
	case now.Sub(polled) > absentAfter:
		return CauseWorkers, "no worker has asked task queue " + queue + " for work since " + polled.Format(time.RFC3339)
	}
	return "", ""
}

// failure says what a run inherited from those before it.
func failure(f *contract.Failure) (Cause, string) {
	switch {
	case f == nil:
		return "", ""
	case f.Tries > f.Count: // not its own: others fail as well
		return CauseUpstream, fmt.Sprintf("%d tries since %s, during %d of which nobody else succeeded: %s: %s",
			f.Tries, f.Since.Format(time.RFC3339), f.Tries-f.Count, f.Class, f.Reason)
	}
	return CauseAccount, fmt.Sprintf("%d tries since %s: %s: %s", f.Tries, f.Since.Format(time.RFC3339), f.Class, f.Reason)
}

// handedBack reads why Sync was handed back, by the words it uses.
func handedBack(why string) (Cause, string) {
	switch {
	case strings.HasPrefix(why, "upstream is out"), strings.HasPrefix(why, "row check"):
		return CauseUpstream, why
	case strings.HasPrefix(why, "no permit"):
		return CausePermits, why
	case strings.Contains(why, "clock has stepped back"):
		return CauseClock, why
	case strings.Contains(why, "due in"):
		return CauseSettling, why
	}
	return CauseQueue, why
}
