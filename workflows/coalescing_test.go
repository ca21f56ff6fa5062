package workflows_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
	"pgregory.net/rapid"

	"github.com/quiesce-io/quiesce/workflows"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// delivery is a change reaching the account's workflow at a time.
type delivery struct {
	contract.Range
	arrives time.Time
}

// account plays the bridge and the store for one account, around the real
// workflow: it starts and continues runs, delivers signals, and answers Sync.
type account struct {
	t          *rapid.T
	deliveries []delivery // by arrival
	lateness   func() time.Duration

	row     contract.SyncResult // Through is what the row accounts for
	calls   []time.Time
	covered map[contract.Position]time.Time // by the call that covered it
}

// sync answers like the activity: wait until due, ask the row, call, write. What
// it has to wait for it hands back.
func (a *account) sync(now time.Time, in contract.SyncInput) (contract.SyncResult, error) {
	settle := time.Duration(in.Settings.Settle)
	later := func(due time.Time) (contract.SyncResult, error) {
		return contract.SyncResult{}, temporal.NewApplicationErrorWithOptions("not due", contract.ErrorDeferred,
			temporal.ApplicationErrorOptions{NextRetryDelay: due.Sub(now)})
	}
	if in.NotBefore.After(now) {
		return later(in.NotBefore)
	}
	settled := slices.DeleteFunc(slices.Clone(in.Pending), func(r contract.Range) bool { return !r.Settled(now, settle) })
	_, open := contract.Split(in.Pending, a.row.CalledAt, settle, a.row.Through)
	_, openSettled := contract.Split(settled, a.row.CalledAt, settle, a.row.Through)
	if len(open) == 0 || len(settled) > 0 && len(openSettled) == 0 {
		return contract.SyncResult{Outcome: contract.OutcomeSkipped, CalledAt: a.row.CalledAt, Through: a.row.Through}, nil
	}
	if len(settled) == 0 {
		return later(slices.MinFunc(in.Pending, func(a, b contract.Range) int { return a.Newest.Compare(b.Newest) }).Newest.Add(settle))
	}
	if due := contract.FirstChange(open).Add(time.Duration(in.Settings.Delay)); due.After(now) {
		return later(due)
	}
	before := a.row.Through
	a.calls = append(a.calls, now)
	covered, pending := contract.Split(in.Pending, now, settle, before)
	a.row = contract.SyncResult{CalledAt: now, Through: contract.Advance(before, covered, pending)}
	return contract.SyncResult{Outcome: contract.OutcomeWritten, CalledAt: now, Through: before}, nil
}

// play runs the account until everything delivered has been covered.
func (a *account) play() {
	var input *contract.AccountSyncInput
	start := a.deliveries[0].arrives
	for generation := 0; len(a.deliveries) > 0 || input != nil; generation++ {
		if generation > 1000 {
			a.t.Fatalf("the account never comes to rest")
		}
		if input == nil {
			first := a.deliveries[0]
			start = first.arrives.Add(max(2*time.Second, first.Oldest.Add(time.Duration(settings.Delay)).Sub(first.arrives)))
			input = &contract.AccountSyncInput{Account: "alice", Settings: settings}
		}
		var end time.Time
		input, end = a.run(start, *input)
		if input != nil {
			start = end
		}
	}
}

// run executes one run from start and returns the next one's input and start.
func (a *account) run(start time.Time, in contract.AccountSyncInput) (*contract.AccountSyncInput, time.Time) {
	suite := new(testsuite.WorkflowTestSuite)
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetStartTime(start)
	workflows.Register(env)
	env.RegisterActivityWithOptions(
		func(context.Context, contract.SyncInput) (contract.SyncResult, error) { panic("mocked") },
		activity.RegisterOptions{Name: contract.Sync})
	env.OnActivity(contract.Sync, mock.Anything, mock.Anything).After(a.lateness()).Return(
		func(_ context.Context, in contract.SyncInput) (contract.SyncResult, error) {
			return a.sync(env.Now(), in)
		})

	delivered := 0
	for _, d := range a.deliveries {
		env.RegisterDelayedCallback(func() {
			env.SignalWorkflow(contract.SignalChanges, contract.Changes{Ranges: []contract.Range{d.Range}, Settings: settings})
			delivered++
		}, max(0, d.arrives.Sub(start)))
	}
	env.ExecuteWorkflow(contract.AccountSync, in)
	end := env.Now()
	a.deliveries = a.deliveries[delivered:]

	var again *workflow.ContinueAsNewError
	if errors.As(env.GetWorkflowError(), &again) {
		var next contract.AccountSyncInput
		if err := converter.GetDefaultDataConverter().FromPayloads(again.Input, &next); err != nil {
			a.t.Fatal(err)
		}
		a.cover(next.Covered)
		return &next, end.Add(again.BackoffStartInterval)
	}
	var result contract.AccountSyncResult
	if err := env.GetWorkflowResult(&result); err != nil {
		a.t.Fatal(err)
	}
	a.cover(result.Covered)
	return nil, end
}

func (a *account) cover(ranges []contract.Range) {
	for _, r := range ranges {
		for offset := r.First.Offset; offset <= r.Last.Offset; offset++ {
			p := contract.Position{Epoch: r.Source.Partition, Offset: offset} // the partition keeps them apart here
			if _, twice := a.covered[p]; !twice {
				a.covered[p] = a.row.CalledAt
			}
		}
	}
}

// optimum is the least number of calls such that each change has one between S
// and D after it: interval stabbing, earliest deadline first.
func optimum(times []time.Time) int {
	times = slices.Clone(times)
	slices.SortFunc(times, time.Time.Compare)
	calls, last := 0, time.Time{}
	for _, t := range times {
		if calls == 0 || t.Add(time.Duration(settings.Settle)).After(last) {
			calls, last = calls+1, t.Add(time.Duration(settings.Delay))
		}
	}
	return calls
}

// TestCoalescingReachesTheOptimum plays random traffic: bursts and gaps, signals
// that lag, redeliveries with a later time, two partitions that overtake each
// other.
func TestCoalescingReachesTheOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &account{t: t, covered: map[contract.Position]time.Time{}}
		milliseconds := func(most int, label string) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, label)) * time.Millisecond
		}
		a.lateness = func() time.Duration { return milliseconds(3000, "lateness") }

		now, times := epoch, map[contract.Position]time.Time{}
		var told []time.Time          // all times that the account is told of
		last := map[int32]time.Time{} // signals of one partition keep their order
		for offset := range int64(rapid.IntRange(1, 25).Draw(t, "changes")) {
			now = now.Add(milliseconds(rapid.SampledFrom([]int{500, 4000, 25000}).Draw(t, "pace"), "gap"))
			partition := int32(rapid.IntRange(0, 1).Draw(t, "partition"))
			r := change(offset, now)
			r.Source.Partition = partition
			times[contract.Position{Epoch: partition, Offset: offset}] = now
			arrives := now.Add(100*time.Millisecond + milliseconds(1500, "lag"))
			if arrives.Before(last[partition]) {
				arrives = last[partition]
			}
			last[partition] = arrives
			a.deliveries = append(a.deliveries, delivery{r, arrives})
			if rapid.IntRange(0, 4).Draw(t, "redeliver") == 0 {
				later := milliseconds(40000, "redelivered")
				r.Oldest, r.Newest = r.Oldest.Add(later), r.Newest.Add(later) // SETTLE_CLOCK=arrival
				told = append(told, r.Oldest)
				a.deliveries = append(a.deliveries, delivery{r, arrives.Add(later)})
			}
		}
		slices.SortStableFunc(a.deliveries, func(x, y delivery) int { return x.arrives.Compare(y.arrives) })
		a.play()

		for p, changed := range times {
			call, ok := a.covered[p]
			if !ok {
				t.Fatalf("change %v was never covered", p)
			}
			if !contract.Settled(changed, call, time.Duration(settings.Settle)) {
				t.Fatalf("change %v of %s is said to be covered by the call of %s", p, changed, call)
			}
		}
		// A redelivery that is told with a later time is a fault that may cost
		// what a change of that time would have cost, and no more.
		told = slices.AppendSeq(told, maps.Values(times))
		if best := optimum(told); len(a.calls) > best {
			t.Fatalf("%d calls, %d would do: %v for %v", len(a.calls), best, a.calls, times)
		}
	})
}
