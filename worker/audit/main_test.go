package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/store/emulator"
	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

const settle = 21 * time.Second

var noEmulator error

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if os.Getenv(emulator.HostVariable) != "" {
			return m.Run()
		}
		path, err := emulator.Find(context.Background())
		if errors.Is(err, emulator.ErrNotFound) {
			noEmulator = err
			return m.Run()
		}
		running, err := emulator.Start(context.Background(), path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer running.Stop()
		if err := os.Setenv(emulator.HostVariable, running.Host); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

var databases atomic.Int64

// fixture is a pipeline's remains: a database, a fake Temporal, and, on demand,
// a fake Kafka. Its base lies a minute back, so that what is called then has
// been written by now.
type fixture struct {
	*testing.T
	store    *store.Store
	log      *Log
	temporal *fakeTemporal
	base     time.Time
	source   contract.Source
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if noEmulator != nil {
		t.Skip(noEmulator)
	}
	cfg := store.Default()
	cfg.Database = fmt.Sprintf("projects/test/instances/test/databases/a%d-%d", time.Now().UnixNano()%1e12, databases.Add(1))
	require.NoError(t, emulator.CreateDatabase(t.Context(), cfg.Database))
	s, err := store.Open(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Check(t.Context()))
	return &fixture{
		T: t, store: s, log: &Log{Client: s.Client(), Accounts: cfg.AccountsTable, Syncs: cfg.SyncsTable},
		temporal: &fakeTemporal{}, base: time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond),
		source: contract.Source{TopicID: contract.TopicID{1}, Topic: "changes"},
	}
}

func (f *fixture) auditor() *Auditor {
	return &Auditor{Log: f.log, Runs: &Runs{
		Service: f.temporal, Namespace: "default", Pipeline: "crm", Converter: converter.GetDefaultDataConverter(),
	}}
}

func (f *fixture) window() Window {
	return Window{Since: f.base.Add(-time.Hour), Until: time.Now().Add(time.Hour)}
}

func (f *fixture) at(seconds float64) time.Time {
	return f.base.Add(time.Duration(seconds * float64(time.Second)))
}

// change returns a change at an offset that came at(seconds).
func (f *fixture) change(offset int64, seconds float64) contract.Range {
	p := contract.Position{Offset: offset}
	return contract.Range{Source: f.source, First: p, Last: p, Count: 1, Oldest: f.at(seconds), Newest: f.at(seconds)}
}

// sync writes a call at(seconds) that covers the changes, as the worker would.
func (f *fixture) sync(account, run string, seconds float64, payload string, covered ...contract.Range) {
	f.Helper()
	f.replayed(account, run, seconds, payload, "", covered...)
}

func (f *fixture) replayed(account, run string, seconds float64, payload, replay string, covered ...contract.Range) {
	f.Helper()
	_, err := f.store.Write(f.Context(), store.Sync{
		Account: account, SyncID: run, Attempt: 1, CalledAt: f.at(seconds), Payload: []byte(payload),
		Covered: covered, UpstreamStatus: 200, UpstreamDuration: 12 * time.Millisecond, ReplayID: replay,
	})
	require.NoError(f, err)
}

// sql changes the database behind everybody's back.
func (f *fixture) sql(statement string) {
	f.Helper()
	_, err := f.store.Client().ReadWriteTransaction(f.Context(), func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		n, err := tx.Update(ctx, spanner.NewStatement(statement))
		if err == nil && n == 0 {
			err = fmt.Errorf("%s: no row", statement)
		}
		return err
	})
	require.NoError(f, err)
}

// kafka starts a broker whose records are those of the arguments, in order, on
// partition 0, and returns the reader. The group has committed them all.
func (f *fixture) kafka(records ...*kgo.Record) *Kafka {
	f.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "changes", "dead"))
	require.NoError(f, err)
	f.Cleanup(cluster.Close)
	options := []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)}
	client, err := kgo.NewClient(options...)
	require.NoError(f, err)
	defer client.Close()
	for _, r := range records {
		if r.Topic == "" {
			r.Topic = "changes"
		}
		require.NoError(f, client.ProduceSync(f.Context(), r).FirstErr())
	}
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(f.Context(), "changes")
	require.NoError(f, err)
	f.source.TopicID = contract.TopicID(topics["changes"].ID)
	in, err := intake.New(intake.Config{AccountKey: "key", Clock: intake.ClockAuto, BadRecord: intake.BadDeadLetter, DeadLetterTopic: "dead"})
	require.NoError(f, err)
	k := &Kafka{Group: "crm", Topics: []string{"changes"}, DeadLetter: "dead", Intake: in, Options: options}
	end, err := admin.ListEndOffsets(f.Context(), "changes")
	require.NoError(f, err)
	f.commit(k, end.Offsets()["changes"][0].At)
	return k
}

func (f *fixture) commit(k *Kafka, offset int64) {
	f.Helper()
	admin, err := k.admin()
	require.NoError(f, err)
	defer admin.Close()
	var offsets kadm.Offsets
	offsets.AddOffset("changes", 0, offset, -1)
	_, err = admin.CommitOffsets(f.Context(), k.Group, offsets)
	require.NoError(f, err)
}

// record returns a record about an account, made at(seconds).
func (f *fixture) record(account string, seconds float64) *kgo.Record {
	return &kgo.Record{Key: []byte(account), Timestamp: f.at(seconds)}
}

// fakeTemporal has runs with histories and answers what audits ask.
type fakeTemporal struct {
	runs   []*fakeRun
	listed []string // queries
	read   []string // IDs of runs whose description was asked for
}

type fakeRun struct {
	workflowID, id, kind string
	status               enumspb.WorkflowExecutionStatus
	events               []*historypb.HistoryEvent
	hidden               bool // not in visibility yet
}

// run adds a run; events are added to it by the methods below.
func (f *fixture) run(account, id, kind string, status enumspb.WorkflowExecutionStatus) *fakeRun {
	r := &fakeRun{workflowID: contract.AccountWorkflowID("crm", account), id: id, kind: kind, status: status}
	f.temporal.runs = append(f.temporal.runs, r)
	return r
}

func (f *fixture) payloads(value any) *commonpb.Payloads {
	f.Helper()
	p, err := converter.GetDefaultDataConverter().ToPayloads(value)
	require.NoError(f, err)
	return p
}

func (r *fakeRun) add(at time.Time, kind enumspb.EventType, event *historypb.HistoryEvent) *fakeRun {
	event.EventId, event.EventTime, event.EventType = int64(len(r.events)+1), timestamppb.New(at), kind
	r.events = append(r.events, event)
	return r
}

func (t *fakeTemporal) find(workflowID, runID string) (*fakeRun, error) {
	var found *fakeRun
	for _, r := range t.runs {
		if r.workflowID == workflowID && (runID == "" || r.id == runID) {
			found = r
		}
	}
	if found == nil {
		return nil, serviceerror.NewNotFound("no such run")
	}
	return found, nil
}

func (t *fakeTemporal) ListWorkflowExecutions(_ context.Context, in *workflowservice.ListWorkflowExecutionsRequest, _ ...grpc.CallOption) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	t.listed = append(t.listed, in.GetQuery())
	out := &workflowservice.ListWorkflowExecutionsResponse{}
	for _, r := range t.runs {
		match := strings.HasPrefix(in.GetQuery(), "WorkflowId = '"+r.workflowID+"' AND ") && !r.hidden
		if strings.HasPrefix(in.GetQuery(), "WorkflowType = 'ParkedAccountSync' AND ExecutionStatus IN ('Terminated'") {
			match = r.kind == contract.ParkedAccountSync && strings.Contains(in.GetQuery(), "'"+r.status.String()+"'")
		}
		if match {
			out.Executions = append(out.Executions, &workflowpb.WorkflowExecutionInfo{Execution: &commonpb.WorkflowExecution{WorkflowId: r.workflowID, RunId: r.id}})
		}
	}
	return out, nil
}

func (t *fakeTemporal) DescribeWorkflowExecution(_ context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	t.read = append(t.read, in.GetExecution().GetRunId())
	r, err := t.find(in.GetExecution().GetWorkflowId(), in.GetExecution().GetRunId())
	if err != nil {
		return nil, err
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: r.workflowID, RunId: r.id}, Type: &commonpb.WorkflowType{Name: r.kind}, Status: r.status,
	}}, nil
}

// GetWorkflowExecutionHistory pages one event at a time.
func (t *fakeTemporal) GetWorkflowExecutionHistory(_ context.Context, in *workflowservice.GetWorkflowExecutionHistoryRequest, _ ...grpc.CallOption) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	r, err := t.find(in.GetExecution().GetWorkflowId(), in.GetExecution().GetRunId())
	if err != nil {
		return nil, err
	}
	at := len(in.GetNextPageToken())
	out := &workflowservice.GetWorkflowExecutionHistoryResponse{History: &historypb.History{}}
	if at < len(r.events) {
		out.History.Events = r.events[at : at+1]
	}
	if at+1 < len(r.events) {
		out.NextPageToken = make([]byte, at+1)
	}
	return out, nil
}

// start adds a start event with the changes pending.
func (f *fixture) start(r *fakeRun, at time.Time, previous string, pending ...contract.Range) *fakeRun {
	account := strings.TrimPrefix(r.workflowID, "crm/account/")
	return r.add(at, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
		WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
			WorkflowType: &commonpb.WorkflowType{Name: r.kind}, ContinuedExecutionRunId: previous,
			Input: f.payloads(contract.AccountSyncInput{Account: account, Pending: pending}),
		}}})
}

func (f *fixture) signal(r *fakeRun, at time.Time, by string, changes ...contract.Range) *fakeRun {
	return r.add(at, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowExecutionSignaledEventAttributes{
		WorkflowExecutionSignaledEventAttributes: &historypb.WorkflowExecutionSignaledEventAttributes{
			SignalName: contract.SignalChanges, Identity: by, Input: f.payloads(contract.Changes{Ranges: changes}),
		}}})
}

func (f *fixture) schedule(r *fakeRun, at time.Time, settle time.Duration, pending ...contract.Range) *fakeRun {
	return r.add(at, enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
		ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{ActivityType: &commonpb.ActivityType{Name: contract.Sync},
			Input: f.payloads(contract.SyncInput{Pending: pending, Settings: contract.Settings{Settle: contract.Duration(settle)}}),
		}}})
}
