package audit

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

var rules = Rules{Settle: settle, Budget: 3, Jitter: 100 * time.Millisecond}

// verify returns the report and what it accuses, as kind and account.
func (f *fixture) verify(a *Auditor, r Rules) (Report, []string) {
	f.Helper()
	report, err := a.Verify(f.Context(), f.window(), r)
	require.NoError(f, err)
	accused := []string{}
	for _, v := range report.Violations {
		accused = append(accused, v.Kind+" "+v.Account)
	}
	return report, accused
}

// TestVerifyAcceptsWhatIsRight is the ground for all planted violations: the
// same world without them.
func TestVerifyAcceptsWhatIsRight(t *testing.T) {
	f := newFixture(t)
	kafka := f.kafka(f.record("a", 0), f.record("b", 1), f.record("a", 5), &kgo.Record{Timestamp: f.at(2)},
		&kgo.Record{Topic: "dead", Timestamp: f.at(3), Headers: []kgo.RecordHeader{
			{Key: "quiesce-topic", Value: []byte("changes")}, {Key: "quiesce-partition", Value: []byte("0")}, {Key: "quiesce-offset", Value: []byte("3")}}},
		f.record("p", 6))
	f.sync("a", "run-1", 30, `{"v":1}`, f.change(0, 0), f.change(2, 5))
	f.sync("b", "run-2", 31, `{"v":1}`, f.change(1, 1))
	f.replayed("b", "run-3", 40, `{"v":1}`, "replay-1")
	require.NoError(t, f.store.Unsettled(t.Context(), store.Sync{Account: "old", SyncID: "run-4", Attempt: 1, CalledAt: f.at(45)}, nil))
	open := f.run("p", "run-p", contract.ParkedAccountSync, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	f.start(open, f.at(8), "", f.change(4, 6))
	a := f.auditor()
	a.Kafka = kafka
	report, accused := f.verify(a, rules)
	require.Empty(t, accused)
	require.Empty(t, report.Unchecked)
	require.Equal(t, Counts{Syncs: 4, Changes: 3, Replays: 1, Accounts: 3, BusiestCalls: 1, Records: 5, Pending: 1, DeadLetters: 1}, report.Counts)
}

// TestVerifySaysWhichTriesItCannotSee: those that failed, each of them once.
func TestVerifySaysWhichTriesItCannotSee(t *testing.T) {
	f := newFixture(t)
	write := func(account, run string, tries int) {
		_, err := f.store.Write(t.Context(), store.Sync{Account: account, SyncID: run, Attempt: 1, CalledAt: f.at(40), Tries: tries, Payload: []byte(`{}`), ReplayID: "r1"})
		require.NoError(t, err)
	}
	unsettled := func(account, run string, tries int) {
		require.NoError(t, f.store.Unsettled(t.Context(), store.Sync{Account: account, SyncID: run, Attempt: 1, CalledAt: f.at(20), Tries: tries}, nil))
	}
	write("a", "run-1", 1)
	write("a", "run-2", 3) // 2 failed
	unsettled("b", "run-3", 2)
	write("b", "run-4", 4) // 1 failed before the other row, 1 after it
	unsettled("c", "run-5", 1)
	write("c", "run-6", 2) // none
	unsettled("d", "run-7", 3)
	write("d", "run-8", 1) // 2; a new sequence
	require.NoError(t, f.store.Discard(t.Context(), store.Discard{Account: "e", ID: "run-9/discard-1", Tries: 4, Operator: "ada", Reason: "gone", At: f.at(20)}))
	write("e", "run-9", 5) // 4, in both rows
	report, accused := f.verify(f.auditor(), Rules{Settle: settle, Budget: 100})
	require.Empty(t, accused)
	require.Contains(t, report.Unchecked[0], "when 10 tries called that failed before these syncs")
}

// TestVerifyFindsPlantedRows plants what can be seen in the tables alone.
func TestVerifyFindsPlantedRows(t *testing.T) {
	for _, test := range []struct {
		name  string
		plant func(f *fixture)
		want  []string
	}{
		{"a change that had not settled", func(f *fixture) { f.sync("a", "run-2", 40, `{}`, f.change(1, 20)) }, []string{Unsettled + " a"}},
		{"an answer older than a change it lists", func(f *fixture) {
			newer, err := contract.ParseVersion("8")
			require.NoError(f, err)
			older, err := contract.ParseVersion("7")
			require.NoError(f, err)
			change := f.change(1, 0)
			change.Version = newer
			_, err = f.store.Write(f.Context(), store.Sync{Account: "a", SyncID: "run-2", Attempt: 1, CalledAt: f.at(40), Payload: []byte(`{}`), Covered: []contract.Range{change}, Version: older})
			require.NoError(f, err)
		}, []string{OldAnswer + " a"}},
		{"a call for nothing", func(f *fixture) { f.sync("a", "run-2", 40, `{}`) }, []string{UncalledFor + " a"}},
		{"a count that is not that of the sources", func(f *fixture) { f.sql("UPDATE AccountSyncs SET Changes = 2 WHERE AccountId = 'a'") }, []string{UncalledFor + " a"}},
		{"over budget", func(f *fixture) {
			for i := range 4 {
				f.sync("x", fmt.Sprint("burst-", i), 40+float64(i)*0.2, `{}`, f.change(int64(10+i), 0))
			}
		}, []string{OverBudget + " "}},
		{"a payload that somebody edited", func(f *fixture) { f.sql(`UPDATE Accounts SET Payload = '{"v":2}' WHERE AccountId = 'a'`) }, []string{RowDiffers + " a"}},
		{"payload and hash edited", func(f *fixture) { f.sql(`UPDATE Accounts SET PayloadHash = 'x' WHERE AccountId = 'a'`) }, []string{RowDiffers + " a"}},
		{"a row set back", func(f *fixture) { f.sql(`UPDATE Accounts SET SyncId = 'other' WHERE AccountId = 'a'`) }, []string{RowDiffers + " a"}},
		{"a row whose call nobody made", func(f *fixture) {
			f.sql(`UPDATE Accounts SET CalledAt = TIMESTAMP_ADD(CalledAt, INTERVAL 10 SECOND) WHERE AccountId = 'a'`)
		}, []string{RowDiffers + " a"}},
		{"a row removed", func(f *fixture) { f.sql(`DELETE FROM Accounts WHERE AccountId = 'a'`) }, []string{RowDiffers + " a"}},
		{"marked deleted by hand", func(f *fixture) {
			f.sql(`UPDATE Accounts SET DeletedAt = CURRENT_TIMESTAMP() WHERE AccountId = 'a'`)
		}, []string{RowDiffers + " a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			f.sync("a", "run-1", 30, `{"v":1}`, f.change(0, 0))
			_, accused := f.verify(f.auditor(), rules)
			require.Empty(t, accused, "before anything is planted")
			test.plant(f)
			_, accused = f.verify(f.auditor(), rules)
			require.Equal(t, test.want, accused)
		})
	}
}

// TestVerifyGoesByTheRunsOwnSettings: a run that had a shorter settle time is
// not accused, one that had a longer one is measured by its own.
func TestVerifyGoesByTheRunsOwnSettings(t *testing.T) {
	f := newFixture(t)
	change := f.change(0, 20)
	f.sync("a", "run-1", 30, `{}`, change)
	_, accused := f.verify(f.auditor(), rules)
	require.Equal(t, []string{Unsettled + " a"}, accused)
	run := f.run("a", "run-1", contract.AccountSync, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)
	f.schedule(f.start(run, f.at(20), "", change), f.at(30), 10*time.Second, change)
	_, accused = f.verify(f.auditor(), rules)
	require.Empty(t, accused)
}

// TestVerifyFindsLostChanges plants committed changes that nobody owns.
func TestVerifyFindsLostChanges(t *testing.T) {
	f := newFixture(t)
	kafka := f.kafka(
		f.record("never", 0),                // 0: no call at all
		f.record("early", 10),               // 1: called before it had settled
		f.record("mine", 11),                // 2: pending in an open run
		f.record("ended", 12),               // 3: its parked run was terminated
		&kgo.Record{Timestamp: f.at(13)},    // 4: no key, no dead letter
		f.record("other", 14),               // 5: an open run that has not taken it
		f.record("ahead", 29),               // 6: a producer's clock ahead; the row's position covers it
		f.record("uncommitted", 15),         // 7: not committed: still the bridge's
		f.record("uncommitted-as-well", 16), // 8
	)
	f.commit(kafka, 7)
	elsewhere := f.change(100, 0)
	elsewhere.Source.Partition = 9 // its position proves nothing about partition 0
	f.sync("early", "run-e", 30, `{}`, elsewhere)
	f.sync("ahead", "run-h", 30, `{}`, f.change(6, 2))
	open := f.run("mine", "run-m", contract.AccountSync, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	f.signal(f.start(open, f.at(11), ""), f.at(12), "bridge-1", f.change(2, 11))
	other := f.run("other", "run-o", contract.AccountSync, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	f.start(other, f.at(14), "", f.change(99, 14))
	f.terminated("ended", "run-t", f.change(3, 12))
	a := f.auditor()
	a.Kafka = kafka
	report, accused := f.verify(a, rules)
	require.ElementsMatch(t, []string{
		ParkedEnded + " ended", Uncovered + " ", Uncovered + " early", Uncovered + " ended", Uncovered + " never", Uncovered + " other",
	}, accused)
	require.Equal(t, 7, report.Counts.Records)
	require.Equal(t, 1, report.Counts.Pending)

	// What an operator gave up is on record.
	require.NoError(t, f.store.Discard(t.Context(), store.Discard{Account: "never", ID: "run-d/discard-1", Dropped: []contract.Range{f.change(0, 0)}, Operator: "ada", Reason: "test data", At: f.at(20)}))
	report, accused = f.verify(a, rules)
	require.NotContains(t, accused, Uncovered+" never")
	require.Len(t, accused, 5)
	require.Equal(t, 1, report.Counts.Discards)

	// Called late enough, none of it is wrong any more.
	for _, account := range []string{"early", "ended", "never", "other"} {
		f.sync(account, "later-"+account, 50, `{}`, f.change(200, 20))
	}
	_, accused = f.verify(a, Rules{Settle: settle})
	require.Equal(t, []string{Uncovered + " "}, accused)
}

// terminated adds a parked run with the changes pending that somebody ended.
func (f *fixture) terminated(account, id string, pending ...contract.Range) {
	run := f.run(account, id, contract.ParkedAccountSync, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED)
	f.start(run, f.at(13), "", pending...).add(f.at(20), enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED, &historypb.HistoryEvent{
		Attributes: &historypb.HistoryEvent_WorkflowExecutionTerminatedEventAttributes{WorkflowExecutionTerminatedEventAttributes: &historypb.WorkflowExecutionTerminatedEventAttributes{Identity: "mallory", Reason: "tidying up"}},
	})
}

// TestVerifyFindsDeletedParkedRuns: a run that was deleted by hand is in no list
// of Temporal's; what was committed to it is missed all the same.
func TestVerifyFindsDeletedParkedRuns(t *testing.T) {
	f := newFixture(t)
	kafka := f.kafka(f.record("parked", 0))
	run := f.run("parked", "run-p", contract.ParkedAccountSync, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	f.start(run, f.at(1), "", f.change(0, 0))
	a := f.auditor()
	a.Kafka = kafka
	report, accused := f.verify(a, rules)
	require.Empty(t, accused)
	require.Equal(t, 1, report.Counts.Pending)
	f.temporal.runs = nil
	report, accused = f.verify(a, rules)
	require.Equal(t, []string{Uncovered + " parked"}, accused)
	require.Contains(t, report.Violations[0].Text, "Temporal has no run of the account")
}

// TestVerifyKnowsTheRunThatGoesOn: a parked run that an operator reset, or ended
// and started again, has handed its changes to the run that is open now.
func TestVerifyKnowsTheRunThatGoesOn(t *testing.T) {
	f := newFixture(t)
	f.terminated("a", "run-1", f.change(3, 12), f.change(4, 13))
	next := f.run("a", "run-2", contract.ParkedAccountSync, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	f.start(next, f.at(21), "", f.change(3, 12))
	report, accused := f.verify(f.auditor(), rules)
	require.Equal(t, []string{ParkedEnded + " a"}, accused)
	require.Contains(t, report.Violations[0].Text, "1 changes were pending and no call has covered them since (changes/0/4)")
	f.signal(next, f.at(22), "bridge-1", f.change(4, 13))
	report, accused = f.verify(f.auditor(), rules)
	require.Empty(t, accused)
	require.Equal(t, 1, report.Counts.BrokenRuns)
	next.status = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED // and has covered nothing
	_, accused = f.verify(f.auditor(), rules)
	require.Equal(t, []string{ParkedEnded + " a"}, accused)
}

// TestVerifyFindsEndedParkedRunsWithoutKafka: Temporal and the tables suffice.
func TestVerifyFindsEndedParkedRunsWithoutKafka(t *testing.T) {
	f := newFixture(t)
	f.terminated("a", "run-1", f.change(3, 12))
	report, accused := f.verify(f.auditor(), rules)
	require.Equal(t, []string{ParkedEnded + " a"}, accused)
	require.Contains(t, report.Violations[0].Text, `terminated by "mallory": tidying up`)
	require.Contains(t, report.Unchecked[0], "KAFKA_BROKERS")

	run := f.run("b", "run-b", contract.ParkedAccountSync, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED)
	f.start(run, f.at(13), "", f.change(5, 12)).add(f.at(20), enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED, &historypb.HistoryEvent{
		Attributes: &historypb.HistoryEvent_WorkflowExecutionCancelRequestedEventAttributes{WorkflowExecutionCancelRequestedEventAttributes: &historypb.WorkflowExecutionCancelRequestedEventAttributes{Identity: "mallory", Cause: "by mistake"}},
	})
	report, accused = f.verify(f.auditor(), rules)
	require.Equal(t, []string{ParkedEnded + " a", ParkedEnded + " b"}, accused)
	require.Contains(t, report.Violations[1].Text, `cancelled by "mallory": by mistake`)
	f.temporal.runs = f.temporal.runs[:1]
	f.sync("a", "run-2", 40, `{}`, f.change(3, 12))
	_, accused = f.verify(f.auditor(), rules)
	require.Empty(t, accused)
}
