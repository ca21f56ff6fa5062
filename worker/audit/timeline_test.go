package audit

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// whats returns what happened, in order.
func whats(t Timeline) (words []string) {
	for _, e := range t.Entries {
		words = append(words, e.From+" "+e.What)
	}
	return words
}

// TestTimelineMergesTheSources: two runs in Temporal, one that its retention has
// dropped, the sync log of both, and Kafka's offsets.
func TestTimelineMergesTheSources(t *testing.T) {
	f := newFixture(t)
	kafka := f.kafka(f.record("a", -100), f.record("a", 0), f.record("a", 25))
	f.commit(kafka, 2)
	first, second := f.change(1, 0), f.change(2, 25)
	f.sync("a", "run-0", -40, `{"v":0}`, f.change(0, -100))
	f.sync("a", "run-1", 30, `{"v":1}`, first)

	failed := f.run("a", "run-1", contract.AccountSync, enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW)
	f.schedule(f.signal(f.start(failed, f.at(0), "run-00"), f.at(1), "bridge-1", first), f.at(30), settle, first)
	failed.add(f.at(30.1), enumspb.EVENT_TYPE_ACTIVITY_TASK_STARTED, &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_ActivityTaskStartedEventAttributes{
		ActivityTaskStartedEventAttributes: &historypb.ActivityTaskStartedEventAttributes{Attempt: 3, Identity: "worker-1", LastFailure: &failurepb.Failure{Message: "no permit within PERMIT_WAIT"}}}})
	failed.add(f.at(30.2), enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED, &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_ActivityTaskFailedEventAttributes{
		ActivityTaskFailedEventAttributes: &historypb.ActivityTaskFailedEventAttributes{Failure: &failurepb.Failure{Message: "upstream answered 500",
			FailureInfo: &failurepb.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: contract.ErrorFailed,
				Details: f.payloads(contract.FailedAttempt{Class: contract.ClassTransient, Reason: "upstream answered 500", Charged: true})}}}}}})
	failed.add(f.at(30.3), enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW, &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowExecutionContinuedAsNewEventAttributes{
		WorkflowExecutionContinuedAsNewEventAttributes: &historypb.WorkflowExecutionContinuedAsNewEventAttributes{NewExecutionRunId: "run-2", BackoffStartInterval: durationpb.New(time.Second),
			Input: f.payloads(contract.AccountSyncInput{Account: "a", Pending: []contract.Range{second}, Covered: []contract.Range{first}})}}})
	open := f.run("a", "run-2", contract.AccountSync, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	open.hidden = true // visibility lags
	f.start(open, f.at(30.3), "run-1", second)

	a := f.auditor()
	a.Kafka = kafka
	timeline, err := a.Timeline(t.Context(), "a", f.window(), nil)
	require.NoError(t, err)
	require.Equal(t, []string{
		"temporal started", "temporal signalled", "temporal scheduled", "temporal attempt", "temporal failed", "temporal continued", "temporal started",
		"sync-log synced", "sync-log synced",
	}, whats(timeline))
	text := func(i int) string { return timeline.Entries[i].Text }
	require.Equal(t, "bridge-1", timeline.Entries[1].By)
	require.Equal(t, "1 changes: changes/0/1", text(1))
	require.Contains(t, text(3), "2 were handed back before it, the last: no permit within PERMIT_WAIT")
	require.Equal(t, "transient, charged to the account: upstream answered 500", text(4))
	require.Contains(t, text(8), "payload "+timeline.Entries[8].Sync.PayloadHash[:12]+", was "+timeline.Entries[7].Sync.PayloadHash[:12])
	require.True(t, *timeline.Entries[1].Committed)
	require.False(t, *timeline.Entries[6].Committed, "offset 2 is not committed")
	require.Len(t, timeline.Missing, 2)
	require.Contains(t, timeline.Missing[0], "run run-0: the sync log names it")
	require.Contains(t, timeline.Missing[1], "run run-00: a later run continues it")

	// By record: what became of it, whichever it is.
	for offset, want := range map[int64]string{0: "covered by the call of", 1: "covered by the call of", 2: "pending in the open run run-2"} {
		record, err := kafka.Record(t.Context(), "changes", 0, offset)
		require.NoError(t, err)
		require.Equal(t, "a", record.Account)
		timeline, err := a.Timeline(t.Context(), record.Account, f.window(), &record)
		require.NoError(t, err)
		require.Contains(t, timeline.Verdict, want, "offset %d", offset)
	}
	_, err = kafka.Record(t.Context(), "changes", 0, 3)
	require.ErrorIs(t, err, ErrNoRecord)

	var out bytes.Buffer
	require.NoError(t, timeline.Print(&out))
	require.Contains(t, out.String(), "signalled  run-1  1 changes: changes/0/1 (by bridge-1) [committed]\n")
	require.Contains(t, out.String(), "not known: run run-00")
}

// TestTimelineWithoutTemporal: retention has dropped everything, and Kafka is
// not configured.
func TestTimelineWithoutTemporal(t *testing.T) {
	f := newFixture(t)
	f.sync("a", "run-1", 30, `{}`, f.change(0, 0))
	timeline, err := f.auditor().Timeline(t.Context(), "a", f.window(), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"sync-log synced"}, whats(timeline))
	require.Len(t, timeline.Missing, 2)
	require.Contains(t, timeline.Missing[0], "run run-1")
	require.Contains(t, timeline.Missing[1], "KAFKA_BROKERS")
}

// TestTimelineOfAWindow: what lies before it is neither told nor asked for, but for
// the hash that the first sync met; a run that visibility does not list yet is
// found by the log.
func TestTimelineOfAWindow(t *testing.T) {
	f := newFixture(t)
	f.sync("a", "run-1", 0, `{"v":1}`, f.change(0, -30))
	first := f.run("a", "run-1", contract.AccountSync, enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW)
	f.start(first, f.at(-30), "run-0", f.change(0, -30))
	f.sync("a", "run-2", 30, `{"v":2}`, f.change(1, 0))
	syncs, err := f.log.Of(t.Context(), "a", f.window())
	require.NoError(t, err)
	since := syncs[1].SyncedAt
	second := f.run("a", "run-2", contract.AccountSync, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)
	second.hidden = true
	f.start(second, since.Add(-time.Millisecond), "run-1", f.change(1, 0))
	f.signal(second, since.Add(time.Millisecond), "bridge-1", f.change(2, 10))
	last := f.run("a", "run-3", contract.AccountSync, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	f.start(last, since.Add(time.Second), "")

	timeline, err := f.auditor().Timeline(t.Context(), "a", Window{Since: since, Until: since.Add(time.Hour)}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"sync-log synced", "temporal signalled", "temporal started"}, whats(timeline))
	require.Contains(t, timeline.Entries[0].Text, "was "+syncs[0].PayloadHash[:12])
	require.Equal(t, []string{"whether offsets are committed: KAFKA_BROKERS is not set"}, timeline.Missing)
	require.NotContains(t, f.temporal.read, "run-0", "it ended before the window")
	require.Contains(t, f.temporal.listed[0], "AND StartTime < '"+instant(since.Add(time.Hour))+"' AND (ExecutionStatus = 'Running' OR CloseTime >= '"+instant(since)+"')")
}

// TestExport holds the schema: what is exported in both forms, name by name.
func TestExport(t *testing.T) {
	f := newFixture(t)
	f.replayed("b", "run-2", 40, `{"v":1}`, "replay-1")
	f.sync("a", "run-1", 30, `{"v":1}`, f.change(3, 1), f.change(5, 2))
	var lines, table bytes.Buffer
	n, err := Export(t.Context(), f.log, f.window(), FormatJSONL, &lines)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	first, second, _ := strings.Cut(lines.String(), "\n")
	var row map[string]any
	require.NoError(t, json.Unmarshal([]byte(first), &row))
	synced := row["synced_at"]
	hash := row["payload_hash"].(string)
	source := `"source":{"topic_id":"AQAAAAAAAAAAAAAAAAAAAA","topic":"changes","partition":0}`
	at := func(s float64) string { return instant(f.at(s)) }
	sources := fmt.Sprintf(`[{%s,"first":{"epoch":0,"offset":3},"last":{"epoch":0,"offset":3},"count":1,"oldest":"%s","newest":"%s"},{%s,"first":{"epoch":0,"offset":5},"last":{"epoch":0,"offset":5},"count":1,"oldest":"%s","newest":"%s"}]`,
		source, at(1), at(1), source, at(2), at(2))
	require.JSONEq(t, fmt.Sprintf(`{"account":"a","synced_at":%q,"sync_id":"run-1","attempt":1,"called_at":%q,"outcome":"written","upstream_status":200,
		"upstream_millis":12,"tries":1,"changes":2,"oldest_change_at":%q,"newest_change_at":%q,"payload_hash":%q,"sources":%s}`,
		synced, at(30), at(1), at(2), hash, sources), first)
	require.Contains(t, second, `"replay_id":"replay-1"`)
	require.NotContains(t, second, "oldest_change_at")

	_, err = Export(t.Context(), f.log, f.window(), FormatCSV, &table)
	require.NoError(t, err)
	rows, err := csv.NewReader(&table).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 3)
	require.Equal(t, csvColumns[:], rows[0])
	require.Equal(t, []string{"a", synced.(string), "run-1", "1", at(30), "written", "200", "12", "2", at(1), at(2), hash, ""}, rows[1][:13])
	require.JSONEq(t, sources, rows[1][13])
	require.Len(t, rows[1], len(csvColumns))

	_, err = Export(t.Context(), f.log, f.window(), "xml", &table)
	require.ErrorContains(t, err, "must be jsonl or csv")
	n, err = Export(t.Context(), f.log, Window{Since: f.base.Add(-time.Hour), Until: f.base}, FormatJSONL, &lines)
	require.NoError(t, err)
	require.Zero(t, n, "written outside the window")
}
