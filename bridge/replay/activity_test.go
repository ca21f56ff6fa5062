package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// fakeAccounts serves every request, unless a test says otherwise.
type fakeAccounts struct {
	mu       sync.Mutex
	asked    []string // accounts, in order; once per request
	served   map[string]result
	underWay int
	most     int

	request func(account string) error                                // nil: accepted
	follow  func(ctx context.Context, account string) (result, error) // nil: unchanged
}

func (f *fakeAccounts) Request(_ context.Context, account string, request contract.ReplayRequest) (string, error) {
	f.mu.Lock()
	f.asked = append(f.asked, account)
	f.underWay++
	f.most = max(f.most, f.underWay)
	f.mu.Unlock()
	if request.ID != "r1" || request.Operator != "ada" || !request.Since.Equal(base) {
		return "", serviceerror.NewInvalidArgument(fmt.Sprintf("wrong request %v", request)) // which is not tried again
	}
	if f.request != nil {
		if err := f.request(account); err != nil {
			f.mu.Lock()
			f.underWay--
			f.mu.Unlock()
			return "", err
		}
	}
	return "run-" + account, nil
}

func (f *fakeAccounts) Follow(ctx context.Context, account, runID, id string) (result, error) {
	defer func() {
		f.mu.Lock()
		f.underWay--
		f.mu.Unlock()
	}()
	if runID != "run-"+account || id != "r1" {
		return result{}, fmt.Errorf("wrong run %s for %s", runID, id)
	}
	if f.follow != nil {
		return f.follow(ctx, account)
	}
	return result{kind: unchanged}, ctx.Err()
}

func (f *fakeAccounts) Served(_ context.Context, account, _ string) (result, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, ok := f.served[account]
	return r, ok, nil
}

func (f *fakeAccounts) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(slices.Values(f.asked))
}

// execute runs one slice in Temporal's test environment.
func execute(t *testing.T, accounts *fakeAccounts, kafka *Kafka, in contract.ReplayInput, prepare func(*testsuite.TestActivityEnvironment)) (contract.ReplayProgress, error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(time.Minute)
	a := &Activity{Accounts: accounts, Kafka: kafka, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	a.Register(env)
	if prepare != nil {
		prepare(env)
	}
	value, err := env.ExecuteActivity(contract.ReplayAccounts, in)
	if err != nil {
		return contract.ReplayProgress{}, err
	}
	var progress contract.ReplayProgress
	require.NoError(t, value.Get(&progress))
	return progress, nil
}

func input(accounts ...string) contract.ReplayInput {
	return contract.ReplayInput{ID: "r1", Operator: "ada", InFlight: 3, Accounts: accounts, Began: base}
}

func cursor(offset int64) contract.ReplayCursor { return contract.ReplayCursor{Offset: offset} }

func TestEveryAccountIsAskedOnce(t *testing.T) {
	results := map[string]result{"a": {kind: unchanged}, "b": {kind: changed, change: contract.PayloadChange{Before: "1", After: "2"}}, "c": {kind: setAside}, "d": {kind: fresh}}
	accounts := &fakeAccounts{follow: func(_ context.Context, account string) (result, error) { return results[account], nil }}
	progress, err := execute(t, accounts, &Kafka{}, input("a", "b", "c", "a", "d"), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c", "d"}, accounts.requests())
	require.Equal(t, contract.ReplayProgress{
		Next: cursor(5), Complete: true, Counts: contract.ReplayCounts{Synced: 2, Unchanged: 1, Changed: 1, Fresh: 1, Parked: 1},
		Changed: []contract.ReplayChange{{Account: "b", PayloadChange: contract.PayloadChange{Before: "1", After: "2"}}},
	}, progress)
}

// TestChangedAccountsAreNamed up to a bound; the count has them all.
func TestChangedAccountsAreNamed(t *testing.T) {
	accounts := &fakeAccounts{follow: func(context.Context, string) (result, error) { return result{kind: changed}, nil }}
	var many []string
	for i := range contract.MaxChangesNamed + 5 {
		many = append(many, fmt.Sprint("account-", i))
	}
	progress, err := execute(t, accounts, &Kafka{}, input(many...), nil)
	require.NoError(t, err)
	require.Len(t, progress.Changed, contract.MaxChangesNamed)
	require.Equal(t, len(many), progress.Counts.Changed)
}

// TestResultOf reads what workers, also those of before, say of a call.
func TestResultOf(t *testing.T) {
	change := func(before, after string) *contract.PayloadChange {
		return &contract.PayloadChange{Before: before, After: after}
	}
	for _, test := range []struct {
		served contract.Replayed
		want   result
	}{
		{contract.Replayed{Outcome: contract.OutcomeUnchanged, Payload: change("a", "a")}, result{kind: unchanged}},
		{contract.Replayed{Outcome: contract.OutcomeUnchanged}, result{kind: unchanged}},
		{contract.Replayed{Outcome: contract.OutcomeWritten, Payload: change("a", "b")}, result{changed, *change("a", "b")}},
		{contract.Replayed{Outcome: contract.OutcomeWritten, Payload: change("", "b")}, result{changed, *change("", "b")}},
		{contract.Replayed{Outcome: contract.OutcomeWritten}, result{kind: changed}},
		{contract.Replayed{Outcome: contract.OutcomeDeleted, Payload: change("a", "")}, result{changed, *change("a", "")}},
		{contract.Replayed{Outcome: contract.OutcomeDeleted, Payload: change("", "")}, result{kind: unchanged}},
		{contract.Replayed{Outcome: contract.OutcomeSkipped}, result{kind: fresh}},
	} {
		require.Equal(t, test.want, resultOf(&test.served))
	}
}

func TestInFlightIsBounded(t *testing.T) {
	accounts := &fakeAccounts{follow: func(context.Context, string) (result, error) {
		time.Sleep(time.Millisecond) // work, not synchronisation
		return result{kind: unchanged}, nil
	}}
	var many []string
	for i := range 50 {
		many = append(many, fmt.Sprint("account-", i))
	}
	_, err := execute(t, accounts, &Kafka{}, input(many...), nil)
	require.NoError(t, err)
	require.LessOrEqual(t, accounts.most, 3)
	require.Len(t, accounts.requests(), 50)
}

// TestSliceResumes: nothing that is done is asked again, whether it lies before
// the cursor or ahead of it; what may have been under way is looked at first.
func TestSliceResumes(t *testing.T) {
	in := input("a", "b", "c", "d", "e", "f")
	progress := contract.ReplayProgress{Next: cursor(2), Ahead: []contract.ReplayCursor{cursor(3)}, Counts: contract.ReplayCounts{Synced: 3, Unchanged: 2, Changed: 1}}
	progress.Changed = []contract.ReplayChange{{Account: "b"}}
	want := contract.ReplayProgress{Next: cursor(6), Complete: true, Counts: contract.ReplayCounts{Synced: 6, Unchanged: 4, Changed: 2},
		Changed: []contract.ReplayChange{{Account: "b"}, {Account: "c"}}}
	t.Run("from the workflow's progress", func(t *testing.T) {
		accounts := &fakeAccounts{served: map[string]result{"c": {kind: changed}}}
		in := in
		in.Progress = progress
		got, err := execute(t, accounts, &Kafka{}, in, nil)
		require.NoError(t, err)
		require.Equal(t, []string{"e", "f"}, accounts.requests())
		require.Equal(t, want, got)
	})
	t.Run("from a dead bridge's heartbeat", func(t *testing.T) {
		accounts := &fakeAccounts{served: map[string]result{"c": {kind: changed}}}
		got, err := execute(t, accounts, &Kafka{}, in, func(env *testsuite.TestActivityEnvironment) { env.SetHeartbeatDetails(progress) })
		require.NoError(t, err)
		require.Equal(t, []string{"e", "f"}, accounts.requests())
		require.Equal(t, want, got)
	})
}

// TestSliceLooksAgain where one before it may have asked, though its progress is
// lost.
func TestSliceLooksAgain(t *testing.T) {
	accounts := &fakeAccounts{served: map[string]result{"a": {kind: changed}}}
	in := input("a", "b")
	in.Again = true
	progress, err := execute(t, accounts, &Kafka{}, in, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, accounts.requests())
	require.Equal(t, contract.ReplayCounts{Synced: 2, Unchanged: 1, Changed: 1}, progress.Counts)
}

// TestStopKeepsWhatIsOpen: a bridge that stops gives up what does not end in
// time, and the cursor stays before it.
func TestStopKeepsWhatIsOpen(t *testing.T) {
	stop, asked := make(chan struct{}), make(chan struct{})
	accounts := &fakeAccounts{follow: func(ctx context.Context, account string) (result, error) {
		if account != "b" {
			return result{kind: unchanged}, nil
		}
		close(asked)
		<-ctx.Done() // never ends by itself
		return result{}, ctx.Err()
	}}
	go func() { <-asked; close(stop) }()
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprint(i))
	}
	in := input(append([]string{"a", "b", "c"}, many...)...)
	in.MaxPerSecond = 100 // so that the end is not reached meanwhile
	progress, err := execute(t, accounts, &Kafka{}, in, func(env *testsuite.TestActivityEnvironment) { env.SetWorkerStopChannel(stop) })
	require.NoError(t, err)
	require.False(t, progress.Complete)
	require.Equal(t, cursor(1), progress.Next, "b is not done")
	require.Less(t, progress.Counts.Synced, 100)

	// The next slice does the rest, and nothing twice.
	accounts.follow = nil
	in.Progress, in.MaxPerSecond = progress, 0
	progress, err = execute(t, accounts, &Kafka{}, in, nil)
	require.NoError(t, err)
	require.True(t, progress.Complete)
	require.Equal(t, 203, progress.Counts.Synced)
	require.Len(t, accounts.requests(), 204, "b was asked twice")
}

// TestOneAccountThatDoesNotEnd holds the others up only when so many are done
// that come after it that more would not fit what Temporal takes.
func TestOneAccountThatDoesNotEnd(t *testing.T) {
	const inFlight = 3
	var many []string
	for i := range contract.MaxReplayAhead + 100 {
		many = append(many, fmt.Sprint("account-", i))
	}
	in := input(many...)
	in.InFlight = inFlight
	stop := make(chan struct{})
	var done atomic.Int64
	accounts := &fakeAccounts{follow: func(ctx context.Context, account string) (result, error) {
		if account == many[0] {
			<-ctx.Done() // never ends by itself
			return result{}, ctx.Err()
		}
		if done.Add(1) == contract.MaxReplayAhead {
			time.AfterFunc(time.Second/2, func() { close(stop) }) // time for those that should not begin
		}
		return result{kind: unchanged}, nil
	}}
	progress, err := execute(t, accounts, &Kafka{}, in, func(env *testsuite.TestActivityEnvironment) { env.SetWorkerStopChannel(stop) })
	require.NoError(t, err)
	require.Equal(t, many[0], progress.WaitsFor)
	require.False(t, progress.Complete)
	require.Equal(t, cursor(0), progress.Next)
	require.GreaterOrEqual(t, len(progress.Ahead), contract.MaxReplayAhead)
	require.LessOrEqual(t, len(progress.Ahead), contract.MaxReplayAhead+inFlight)

	// A slice that begins with so many does the one that they wait for, and then
	// the rest.
	accounts.follow = nil
	in.Progress = progress
	progress, err = execute(t, accounts, &Kafka{}, in, nil)
	require.NoError(t, err)
	require.True(t, progress.Complete)
	require.Empty(t, progress.WaitsFor)
	require.Equal(t, len(many), progress.Counts.Synced)
	require.Len(t, accounts.requests(), len(many)+1, "only the first is asked for twice")
}

// TestProgressFitsAPayload also where everything in it is as long as can be.
func TestProgressFitsAPayload(t *testing.T) {
	var p contract.ReplayProgress
	for range contract.MaxReplayAhead {
		p.Ahead = append(p.Ahead, contract.ReplayCursor{Range: 99_999, Offset: math.MaxInt64})
	}
	for range contract.MaxChangesNamed {
		p.Changed = append(p.Changed, contract.ReplayChange{Account: strings.Repeat("a", contract.MaxAccountKeyBytes)})
	}
	p.WaitsFor = p.Changed[0].Account
	encoded, err := converter.GetDefaultDataConverter().ToPayload(p)
	require.NoError(t, err)
	require.Less(t, len(encoded.GetData()), 2<<20-maxAccountBytes)
	require.Less(t, len(encoded.GetData()), 512<<10, "where Temporal warns")
}

// TestErrorsAreWaitedOut: what Temporal does not answer is asked again, what it
// refuses is not.
func TestErrorsAreWaitedOut(t *testing.T) {
	failed := map[string]int{}
	accounts := &fakeAccounts{request: func(account string) error {
		failed[account]++
		switch {
		case account == "refused":
			return serviceerror.NewInvalidArgument("no")
		case account == "a" && failed[account] == 1:
			return serviceerror.NewUnavailable("out")
		case account == "b" && failed[account] == 1:
			return errAgain
		}
		return nil
	}}
	in := input("a", "b", "refused")
	in.InFlight = 1
	progress, err := execute(t, accounts, &Kafka{}, in, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"a": 2, "b": 2, "refused": 1}, failed)
	require.Equal(t, contract.ReplayCounts{Synced: 2, Unchanged: 2, Invalid: 1}, progress.Counts)
}

func TestPace(t *testing.T) {
	began := time.Now()
	in := input("a", "b", "c", "d", "e")
	in.MaxPerSecond = 20
	_, err := execute(t, &fakeAccounts{}, &Kafka{}, in, nil)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond, "five accounts are four gaps of 50 ms")
}

// broker returns a broker with two partitions whose records are given by key;
// "" is a record without one.
func broker(t *testing.T, partitions ...[]string) *Kafka {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(int32(len(partitions)), "changes"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer client.Close()
	for partition, keys := range partitions {
		for i, key := range keys {
			r := &kgo.Record{Topic: "changes", Partition: int32(partition), Timestamp: base.Add(time.Duration(i) * time.Second)}
			if key != "" {
				r.Key = []byte(key)
			}
			require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
		}
	}
	in, err := intake.New(intake.Config{AccountKey: "key", Clock: intake.ClockAuto, BadRecord: intake.BadSkip})
	require.NoError(t, err)
	return &Kafka{Options: []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)}, Intake: in}
}

var base = time.UnixMilli(1_800_000_000_000)

func ranged(ranges ...contract.ReplayRange) contract.ReplayInput {
	in := input()
	in.Ranges = ranges
	return in
}

func TestRecordsAreReplayedByRange(t *testing.T) {
	kafka := broker(t, []string{"before", "a", "b", "a", "", "after"}, []string{"b", "c", "after"})
	in := ranged(contract.ReplayRange{Topic: "changes", From: 1, To: 5}, contract.ReplayRange{Topic: "changes", Partition: 1, From: 0, To: 2})

	survey, err := kafka.Survey(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, Survey{Changes: 6, Accounts: 3, Invalid: 1}, survey)

	accounts := &fakeAccounts{}
	progress, err := execute(t, accounts, kafka, in, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, accounts.requests())
	require.Equal(t, contract.ReplayCounts{Synced: 3, Unchanged: 3, Invalid: 1}, progress.Counts)
	require.True(t, progress.Complete)

	// A slice that begins in the second partition knows what the first one held.
	accounts = &fakeAccounts{}
	in.Progress = contract.ReplayProgress{Next: contract.ReplayCursor{Range: 1}, Counts: contract.ReplayCounts{Synced: 2, Unchanged: 2, Invalid: 1}}
	progress, err = execute(t, accounts, kafka, in, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"c"}, accounts.requests())
	require.Equal(t, contract.ReplayCounts{Synced: 3, Unchanged: 3, Invalid: 1}, progress.Counts)
}

// TestRangesAreClamped to what the log has, and what is gone is not an error.
func TestRangesAreClamped(t *testing.T) {
	kafka := broker(t, []string{"a", "b", "c"})
	admin, err := kadm.NewOptClient(kafka.Options...)
	require.NoError(t, err)
	defer admin.Close()
	var offsets kadm.Offsets
	offsets.AddOffset("changes", 0, 1, -1)
	_, err = admin.DeleteRecords(t.Context(), offsets)
	require.NoError(t, err)
	for _, r := range []contract.ReplayRange{{Topic: "changes", From: 0, To: 100}, {Topic: "changes", From: 1, To: 3}} {
		survey, err := kafka.Survey(t.Context(), ranged(r))
		require.NoError(t, err)
		require.Equal(t, 2, survey.Accounts)
	}
	for _, r := range []contract.ReplayRange{{Topic: "changes", From: 0, To: 1}, {Topic: "changes", From: 3, To: 9}} {
		survey, err := kafka.Survey(t.Context(), ranged(r))
		require.NoError(t, err)
		require.Zero(t, survey.Changes)
	}
	_, err = kafka.Survey(t.Context(), ranged(contract.ReplayRange{Topic: "changes", Partition: 7, To: 1}))
	require.ErrorContains(t, err, "has no partition 7")
}

// TestTransactions: what was aborted is not replayed, and a range that ends with
// a control record ends.
func TestTransactions(t *testing.T) {
	kafka := broker(t, []string{"a"})
	producer, err := kgo.NewClient(append(kafka.Options, kgo.TransactionalID("t"), kgo.DefaultProduceTopic("changes"))...)
	require.NoError(t, err)
	defer producer.Close()
	for key, commit := range map[string]kgo.TransactionEndTry{"aborted": kgo.TryAbort, "committed": kgo.TryCommit} {
		require.NoError(t, producer.BeginTransaction())
		require.NoError(t, producer.ProduceSync(t.Context(), &kgo.Record{Key: []byte(key)}).FirstErr())
		require.NoError(t, producer.EndTransaction(t.Context(), commit))
	}
	accounts := &fakeAccounts{}
	progress, err := execute(t, accounts, kafka, ranged(contract.ReplayRange{Topic: "changes", To: 5}), nil)
	require.NoError(t, err)
	require.True(t, progress.Complete)
	require.Equal(t, []string{"a", "committed"}, accounts.requests())
}

func TestBetween(t *testing.T) {
	kafka := broker(t, []string{"a", "b", "c", "d"}, []string{"e"})
	ranges, err := kafka.Between(t.Context(), []string{"changes"}, base.Add(time.Second), base.Add(3*time.Second))
	require.NoError(t, err)
	require.Equal(t, []contract.ReplayRange{{Topic: "changes", From: 1, To: 3}}, ranges, "from included, to not")
	ranges, err = kafka.Between(t.Context(), []string{"changes"}, base.Add(-time.Hour), base.Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, []contract.ReplayRange{{Topic: "changes", To: 4}, {Topic: "changes", Partition: 1, To: 1}}, ranges)
}

func TestBrokenKafkaIsAnError(t *testing.T) {
	_, err := execute(t, &fakeAccounts{}, broker(t, []string{"a"}), ranged(contract.ReplayRange{Topic: "other", To: 1}), nil)
	require.Error(t, err)
	require.NotErrorIs(t, err, context.Canceled)
	require.True(t, errors.Unwrap(err) != nil)
}

func TestParseRange(t *testing.T) {
	r, err := ParseRange("changes/3/10-19")
	require.NoError(t, err)
	require.Equal(t, contract.ReplayRange{Topic: "changes", Partition: 3, From: 10, To: 20}, r)
	for _, text := range []string{"", "changes/0/5", "changes/0/9-5", "changes/-1/0-5", "/0/0-5", "changes/x/0-5", "changes/0/-5"} {
		_, err := ParseRange(text)
		require.Error(t, err, text)
	}
}

func TestAccountList(t *testing.T) {
	list, err := AccountList([]string{"b", "a", "b"})
	require.NoError(t, err)
	require.Equal(t, []string{"b", "a"}, list)
	_, err = AccountList([]string{"", "\xff"})
	require.ErrorContains(t, err, "is empty")
	require.ErrorContains(t, err, "UTF-8")
	many := make([]string, 100_000)
	for i := range many {
		many[i] = fmt.Sprintf("account-%010d", i)
	}
	_, err = AccountList(many)
	require.ErrorContains(t, err, "make several of at most")
}

// TestFraction, in accounts and in offsets.
func TestFraction(t *testing.T) {
	s := contract.ReplayState{Accounts: 4, Progress: contract.ReplayProgress{Next: cursor(1)}}
	require.InDelta(t, 0.25, s.Fraction(), 1e-9)
	s = contract.ReplayState{Ranges: []contract.ReplayRange{{From: 10, To: 20}, {From: 0, To: 30}}, Progress: contract.ReplayProgress{Next: contract.ReplayCursor{Range: 1, Offset: 10}}}
	require.InDelta(t, 0.5, s.Fraction(), 1e-9)
	s.Progress.Complete = true
	require.InDelta(t, 1, s.Fraction(), 1e-9)
}
