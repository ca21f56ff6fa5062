package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// parked checks the parked runs that were ended from outside: their changes are
// committed, so either the row covers them, or somebody gave them up, or a run
// that is open now has them: an operator's reset ends a run, and begins another
// that goes on with what it had.
func (v *verification) parked(ctx context.Context, w Window) error {
	return v.Runs.Broken(ctx, w, func(run Run) error {
		v.report.Counts.BrokenRuns++
		account, ranges, err := v.Runs.Took(run)
		if err != nil || len(ranges) == 0 {
			return err
		}
		rows, err := v.Log.Rows(ctx, []string{account})
		if err != nil {
			return err
		}
		row := rows[account]
		settle, known := v.Runs.settle(run)
		if !known {
			settle = v.rules.Settle
		}
		_, open := contract.Split(ranges, row.CalledAt, settle, row.Through)
		discarded, err := v.discarded(ctx, account)
		if err != nil {
			return err
		}
		latest, pending, err := v.latest(ctx, account)
		if err != nil {
			return err
		}
		owners := discarded
		if latest.ID != run.ID {
			owners = append(owners, pending...)
		}
		open = slices.DeleteFunc(open, func(r contract.Range) bool {
			return slices.ContainsFunc(owners, func(o contract.Range) bool { return o.Contains(r.Source, r.First) && o.Contains(r.Source, r.Last) })
		})
		if len(open) == 0 {
			return nil
		}
		end := run.Events[len(run.Events)-1]
		v.violation(ParkedEnded, account, run.ID, end.GetEventTime().AsTime(), "%d changes were pending and no call has covered them since (%s); %s; replay the account to read it again",
			contract.Count(open), rangesText(open), endedBy(run))
		return nil
	})
}

// endedBy says how a run was ended, and by whom where that is on record.
func endedBy(run Run) string {
	for _, event := range slices.Backward(run.Events) {
		if a := event.GetWorkflowExecutionTerminatedEventAttributes(); a != nil {
			return fmt.Sprintf("terminated by %q: %s", a.GetIdentity(), a.GetReason())
		}
		if a := event.GetWorkflowExecutionCancelRequestedEventAttributes(); a != nil {
			return fmt.Sprintf("cancelled by %q: %s", a.GetIdentity(), a.GetCause())
		}
	}
	return "ended as " + run.Status.String()
}

// latest returns the account's latest run, and the changes that it has taken if
// it is open. Without one the run is zero.
func (v *verification) latest(ctx context.Context, account string) (Run, []contract.Range, error) {
	run, err := v.Runs.Read(ctx, contract.AccountWorkflowID(v.Runs.Pipeline, account), "")
	if errors.Is(err, ErrNoRun) {
		return Run{}, nil, nil
	}
	if err != nil || run.Status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return run, nil, err
	}
	_, took, err := v.Runs.Took(run)
	return run, took, err
}

// discarded returns the changes of the account that operators have given up.
func (v *verification) discarded(ctx context.Context, account string) ([]contract.Range, error) {
	syncs, err := v.Log.Of(ctx, account, Window{Since: time.Unix(0, 0), Until: time.Now().AddDate(1, 0, 0)})
	var ranges []contract.Range
	for _, s := range syncs {
		if s.Discarded() {
			ranges = append(ranges, s.Sources...)
		}
	}
	return ranges, err
}

// lookAtOnce is how many accounts of records are looked up together.
const lookAtOnce = 5000

// records checks that every committed record of the window is covered, or owned
// by a parked account, or a dead letter.
func (v *verification) records(ctx context.Context, w Window) error {
	committed, err := v.Kafka.Committed(ctx)
	if err != nil {
		return err
	}
	letters, err := v.Kafka.DeadLetters(ctx, w)
	if err != nil {
		return err
	}
	byAccount := map[string][]Change{}
	err = v.Kafka.Window(ctx, w, committed, func(c Change) error {
		v.report.Counts.Records++
		if letters[c.String()] {
			v.report.Counts.DeadLetters++
			return nil
		}
		if c.Bad != "" {
			if v.Kafka.DeadLetter != "" {
				v.violation(Uncovered, "", "", c.Time, "%s is committed, has no usable account key (%s), and is not in %s", c, c.Bad, v.Kafka.DeadLetter)
			}
			return nil
		}
		byAccount[c.Account] = append(byAccount[c.Account], c)
		if len(byAccount) < lookAtOnce {
			return nil
		}
		defer clear(byAccount)
		return v.owned(ctx, byAccount)
	})
	if err != nil {
		return err
	}
	return v.owned(ctx, byAccount)
}

// owned checks the records of some accounts.
func (v *verification) owned(ctx context.Context, byAccount map[string][]Change) error {
	accounts := slices.Sorted(maps.Keys(byAccount))
	rows, err := v.Log.Rows(ctx, accounts)
	if err != nil {
		return err
	}
	for _, account := range accounts {
		row := rows[account]
		var open []Change
		for _, c := range byAccount[account] {
			if !v.covers(row, c) {
				open = append(open, c)
			}
		}
		if len(open) == 0 {
			continue
		}
		if err := v.owner(ctx, account, row, open); err != nil {
			return err
		}
	}
	return nil
}

// covers reports whether the row covers the change. The record's timestamp
// stands for the change's time. Where the bridge goes by arrival its own is
// later: then a change may pass here for a call that was a little early, but
// none is accused wrongly. A timestamp from a clock that is ahead is excused by
// the row's positions.
func (v *verification) covers(row Row, c Change) bool {
	as := contract.Range{Source: c.Source, First: c.Position, Last: c.Position, Oldest: c.Time, Newest: c.Time}
	return contract.Covers(as, row.CalledAt, v.rules.Settle, row.Through)
}

// owner looks for the open run that owns the changes.
func (v *verification) owner(ctx context.Context, account string, row Row, open []Change) error {
	// A parked run owns what was committed. One that is not parked may have taken
	// over from one, or be the redelivery of changes that the commit overtook:
	// either way the changes are pending there.
	run, took, err := v.latest(ctx, account)
	if err != nil {
		return err
	}
	state := "the open run " + run.ID + " has not taken them"
	switch {
	case run.ID == "":
		state = "Temporal has no run of the account"
	case run.Status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		state = fmt.Sprintf("the account's last run %s is %s", run.ID, run.Status)
	}
	open = slices.DeleteFunc(open, func(c Change) bool {
		owned := slices.ContainsFunc(took, func(r contract.Range) bool { return r.Contains(c.Source, c.Position) })
		if owned {
			v.report.Counts.Pending++
		}
		return owned
	})
	if len(open) == 0 {
		return nil
	}
	discarded, err := v.discarded(ctx, account)
	if err != nil {
		return err
	}
	open = slices.DeleteFunc(open, func(c Change) bool {
		return slices.ContainsFunc(discarded, func(d contract.Range) bool { return d.Contains(c.Source, c.Position) })
	})
	if len(open) == 0 {
		return nil
	}
	called := "never called"
	if !row.CalledAt.IsZero() {
		called = "last called at " + instant(row.CalledAt)
	}
	v.violation(Uncovered, account, "", open[0].Time, "%d committed changes are covered by no call and owned by no run, the first %s; the account was %s; %s",
		len(open), open[0], called, state)
	return nil
}
