package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Kinds of a violation.
const (
	// Unsettled is a call that lists a change that had not settled for it.
	Unsettled = "unsettled"
	// OldAnswer is a call that lists a change whose version is newer than that
	// of the answer.
	OldAnswer = "old-answer"
	// UncalledFor is a sync with neither changes nor a replay behind it.
	UncalledFor = "no-cause"
	// OverBudget is more calls in a second than the budget.
	OverBudget = "over-budget"
	// RowDiffers is a row that is not what the last sync wrote.
	RowDiffers = "row-differs"
	// Uncovered is a committed change that no call covers and nobody owns.
	Uncovered = "uncovered"
	// ParkedEnded is a parked run that was ended by hand while changes were
	// pending that nothing has covered since.
	ParkedEnded = "parked-run-ended"
)

// Violation is one broken promise.
type Violation struct {
	Kind    string    `json:"kind"`
	Account string    `json:"account,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Run     string    `json:"run,omitempty"`
	Text    string    `json:"text"`
}

// Counts says how much was looked at: no violations among nothing proves
// nothing.
type Counts struct {
	Syncs        int `json:"syncs"`
	Changes      int `json:"changes"` // covered by them
	Replays      int `json:"replayed"`
	Discards     int `json:"discards"` // decisions to give changes up; no calls
	Accounts     int `json:"accounts"`
	BusiestCalls int `json:"busiest_second_calls"`
	// Records is how many committed records were looked up; Pending and
	// DeadLetters are those that no call covers but an open run or the
	// dead-letter topic has.
	Records     int `json:"records"`
	Pending     int `json:"records_pending_in_open_runs"`
	DeadLetters int `json:"records_dead_letters"`
	// BrokenRuns is how many parked runs were ended from outside.
	BrokenRuns int `json:"parked_runs_ended"`
}

// Report is the result of a verification.
type Report struct {
	Window     Window      `json:"window"`
	Counts     Counts      `json:"counts"`
	Unchecked  []string    `json:"unchecked,omitempty"` // what could not be looked at, and why
	Violations []Violation `json:"violations"`
}

// Rules are what syncs are held against.
type Rules struct {
	// Settle is S where a run's own setting is not known any more.
	Settle time.Duration
	// Budget is the most calls in any second; 0: not checked.
	Budget int
	// Jitter is how much CalledAt may be off: it is Temporal's clock plus what
	// has passed since the task arrived, which lacks the task's way.
	Jitter time.Duration
}

// verification is one run of Verify.
type verification struct {
	*Auditor
	rules  Rules
	report Report
	last   map[string]Sync // of each account, the one that should stand in its row
	calls  []time.Time
	before Sync // the row before; rows come by account, oldest first
	tries  int64
}

// Verify checks the promises over the window.
func (a *Auditor) Verify(ctx context.Context, w Window, rules Rules) (Report, error) {
	v := &verification{Auditor: a, rules: rules, last: map[string]Sync{}}
	v.report = Report{Window: w, Violations: []Violation{}}
	if err := a.Log.Each(ctx, w, func(s Sync) error { return v.sync(ctx, s) }); err != nil {
		return v.report, err
	}
	v.report.Counts.Accounts = len(v.last)
	v.budget()
	if err := v.rows(ctx); err != nil {
		return v.report, err
	}
	if err := v.parked(ctx, w); err != nil {
		return v.report, err
	}
	if a.Kafka == nil {
		v.report.Unchecked = append(v.report.Unchecked, "whether every committed change is covered: KAFKA_BROKERS is not set")
		return v.report, nil
	}
	return v.report, v.records(ctx, w)
}

func (v *verification) violation(kind, account, run string, at time.Time, format string, args ...any) {
	v.report.Violations = append(v.report.Violations, Violation{Kind: kind, Account: account, Run: run, At: at, Text: fmt.Sprintf(format, args...)})
}

// sync checks one row of the log by itself.
func (v *verification) sync(ctx context.Context, s Sync) error {
	v.tries += triesWithoutRow(v.before, s)
	v.before = s
	c := &v.report.Counts
	if s.Discarded() {
		c.Discards++
		return nil
	}
	c.Syncs++
	c.Changes += int(s.Changes)
	v.calls = append(v.calls, s.CalledAt)
	if s.ReplayID != "" {
		c.Replays++
	}
	if n := contract.Count(s.Sources); n != int(s.Changes) {
		v.violation(UncalledFor, s.Account, s.SyncID, s.SyncedAt, "the row says %d changes, its sources add up to %d", s.Changes, n)
	} else if n == 0 && s.ReplayID == "" && !s.Fenced() {
		v.violation(UncalledFor, s.Account, s.SyncID, s.SyncedAt, "a call with neither changes nor a replay behind it")
	}
	if !s.Fenced() {
		// The row is the newest call's; of equal times the later write's.
		if last, ok := v.last[s.Account]; !ok || !s.CalledAt.Before(last.CalledAt) {
			v.last[s.Account] = s
		}
	} else if _, ok := v.last[s.Account]; !ok {
		v.last[s.Account] = Sync{Account: s.Account}
	}
	for _, r := range s.Sources {
		if s.Version.OlderThan(r.Version) {
			v.violation(OldAnswer, s.Account, s.SyncID, s.SyncedAt, "%s has version %s and is listed as covered by an answer of version %s",
				rangesText([]contract.Range{r}), r.Version, s.Version)
		}
	}
	return v.settled(ctx, s)
}

// triesWithoutRow returns how many tries the row says that came before it and
// that failed, so that they have no row. Those that the account's row before says
// as well count there: the tries of an answer that was not settled go on, and
// those of a discard of some changes.
func triesWithoutRow(before, s Sync) int64 {
	tries := s.Tries
	if !s.Discarded() {
		tries-- // its own
	}
	goesOn := before.Discarded() || before.Outcome == string(contract.OutcomeUnsettled)
	if goesOn && before.Account == s.Account && before.Tries <= tries {
		tries -= before.Tries
	}
	return max(0, tries)
}

// settled checks that the call was late enough for what it lists. A run keeps
// the settings that applied to it, so one that seems too early is asked for them
// before it is accused.
func (v *verification) settled(ctx context.Context, s Sync) error {
	early := func(settle time.Duration) []contract.Range {
		var ranges []contract.Range
		for _, r := range s.Sources {
			if !r.Settled(s.CalledAt, settle) {
				ranges = append(ranges, r)
			}
		}
		return ranges
	}
	settle := v.rules.Settle
	if len(early(settle)) == 0 {
		return nil
	}
	whose := "as given"
	run, err := v.Runs.Read(ctx, contract.AccountWorkflowID(v.Runs.Pipeline, s.Account), s.SyncID)
	switch {
	case err == nil:
		if own, ok := v.Runs.settle(run); ok {
			settle, whose = own, "in the run's settings"
		}
	case !errors.Is(err, ErrNoRun):
		return err
	}
	for _, r := range early(settle) {
		v.violation(Unsettled, s.Account, s.SyncID, s.SyncedAt, "%s of %s is listed as covered by the call of %s, %s later; S is %s %s",
			rangesText([]contract.Range{r}), instant(r.Newest), instant(s.CalledAt), s.CalledAt.Sub(r.Newest), settle, whose)
	}
	return nil
}

// settle returns S of the run's activity.
func (r *Runs) settle(run Run) (time.Duration, bool) {
	for _, event := range run.Events {
		if a := event.GetActivityTaskScheduledEventAttributes(); a.GetActivityType().GetName() == contract.Sync {
			var in contract.SyncInput
			if r.Converter.FromPayloads(a.GetInput(), &in) == nil {
				return time.Duration(in.Settings.Settle), true
			}
		}
	}
	return 0, false
}

// budget checks the calls of every second.
func (v *verification) budget() {
	slices.SortFunc(v.calls, time.Time.Compare)
	span := time.Second - v.rules.Jitter
	from, reported := 0, time.Time{}
	for to := range v.calls {
		for v.calls[to].Sub(v.calls[from]) >= span {
			from++
		}
		n := to - from + 1
		v.report.Counts.BusiestCalls = max(v.report.Counts.BusiestCalls, n)
		if v.rules.Budget > 0 && n > v.rules.Budget && v.calls[to].Sub(reported) >= time.Second {
			reported = v.calls[to]
			v.violation(OverBudget, "", "", v.calls[from], "%d calls within %s, the budget is %d a second", n, span, v.rules.Budget)
		}
	}
	switch {
	case v.rules.Budget == 0:
		v.report.Unchecked = append(v.report.Unchecked, "calls per second: no budget was given (UPSTREAM_RPS)")
	case v.tries > 0:
		v.report.Unchecked = append(v.report.Unchecked, fmt.Sprintf(
			"when %d tries called that failed before these syncs, so calls per second may have been more: a try that was answered with a failure, got no answer or did not write has no row", v.tries))
	}
}

// rows checks that rows are what the last sync wrote.
func (v *verification) rows(ctx context.Context) error {
	accounts := slices.Sorted(maps.Keys(v.last))
	for from := 0; from < len(accounts); from += rowsAtOnce {
		rows, err := v.Log.Rows(ctx, accounts[from:min(from+rowsAtOnce, len(accounts))])
		if err != nil {
			return err
		}
		for _, account := range accounts[from:min(from+rowsAtOnce, len(accounts))] {
			if err := v.row(ctx, account, rows); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *verification) row(ctx context.Context, account string, rows map[string]Row) error {
	last := v.last[account]
	row, exists := rows[account]
	differs := func(format string, args ...any) {
		v.violation(RowDiffers, account, last.SyncID, last.SyncedAt, format, args...)
	}
	switch {
	case last.SyncID == "":
		// Only calls whose answers were not kept: the row, if there is one, was
		// written before the window.
	case !exists:
		differs("the log has syncs, the account has no row")
	case row.CalledAt.After(last.CalledAt):
		// A later sync, outside the window or after it was read: not ours to judge,
		// but that it was made is, and the payload.
		logged, err := v.Log.has(ctx, row)
		if err != nil {
			return err
		}
		if !logged {
			differs("the row is of run %s attempt %d called at %s, of which the log knows nothing", row.SyncID, row.Attempt, instant(row.CalledAt))
		}
		if row.PayloadHash != row.ActualHash {
			differs("the payload's hash is %s, the row says %s", short(row.ActualHash), short(row.PayloadHash))
		}
	case row.SyncID != last.SyncID || row.Attempt != last.Attempt:
		differs("the row is of run %s attempt %d called at %s; the last sync in the log is attempt %d called at %s",
			row.SyncID, row.Attempt, instant(row.CalledAt), last.Attempt, instant(last.CalledAt))
	case row.PayloadHash != last.PayloadHash:
		differs("the row says hash %s, the last sync wrote %s", short(row.PayloadHash), short(last.PayloadHash))
	case row.ActualHash != row.PayloadHash:
		differs("the payload's hash is %s, the last sync wrote %s: somebody else has changed it", short(row.ActualHash), short(row.PayloadHash))
	case row.Deleted != (last.Outcome == string(contract.OutcomeDeleted)):
		differs("deleted in the row: %t; the last sync's outcome: %s", row.Deleted, last.Outcome)
	}
	return nil
}
