package parked_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/mocks"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/quiesce-io/quiesce/worker/parked"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func change(offset int64) contract.Range {
	p := contract.Position{Offset: offset}
	return contract.Range{Source: contract.Source{Topic: "t"}, First: p, Last: p, Count: 1, Oldest: now, Newest: now}
}

// terminated is an account whose latest run somebody terminated.
const terminated = "dora"

// runs has the mock answer for open runs with these inputs, by workflow ID.
func runs(t *testing.T, inputs map[string]contract.AccountSyncInput) (*mocks.Client, *parked.Accounts) {
	c := &mocks.Client{}
	t.Cleanup(func() { c.AssertExpectations(t) })
	list := &workflowservice.ListWorkflowExecutionsResponse{}
	for id, in := range inputs {
		execution := &commonpb.WorkflowExecution{WorkflowId: id, RunId: "run of " + id}
		status := enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
		if in.Account == terminated {
			status = enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
		}
		list.Executions = append(list.Executions, &workflowpb.WorkflowExecutionInfo{Execution: execution})
		c.On("DescribeWorkflowExecution", mock.Anything, id, "").Maybe().Return(&workflowservice.DescribeWorkflowExecutionResponse{
			WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
				Execution: execution, Status: status,
			},
		}, nil)
		payloads, err := converter.GetDefaultDataConverter().ToPayloads(in)
		require.NoError(t, err)
		history := &mocks.HistoryEventIterator{}
		history.On("Next").Return(&historypb.HistoryEvent{
			EventTime: timestamppb.New(now),
			Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
				WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
					Input: payloads, FirstWorkflowTaskBackoff: durationpb.New(time.Minute),
				},
			},
		}, nil)
		c.On("GetWorkflowHistory", mock.Anything, id, "run of "+id, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT).Maybe().Return(history)
	}
	c.On("DescribeWorkflowExecution", mock.Anything, mock.Anything, "").Maybe().Return(nil, serviceerror.NewNotFound("no such workflow"))
	c.On("ListWorkflow", mock.Anything, mock.MatchedBy(func(r *workflowservice.ListWorkflowExecutionsRequest) bool {
		return r.Namespace == "ns" && r.Query == "WorkflowType = 'ParkedAccountSync' AND ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH 'crm/account/'"
	})).Maybe().Return(list, nil)
	return c, &parked.Accounts{Client: c, Converter: converter.GetDefaultDataConverter(), Namespace: "ns", Pipeline: "crm", TaskQueue: "queue"}
}

func failing(account, class, reason string, since time.Duration, pending ...contract.Range) contract.AccountSyncInput {
	return contract.AccountSyncInput{Account: account, Pending: pending, Failure: &contract.Failure{
		Count: 5, Tries: 7, Since: now.Add(-since), Last: now, Class: class, Reason: reason, Parked: true,
	}}
}

func TestWhatIsKnownOfAParkedAccount(t *testing.T) {
	_, accounts := runs(t, map[string]contract.AccountSyncInput{
		"crm/account/alice": failing("alice", contract.ClassRefused, "400", time.Hour, change(1), change(2)),
		"crm/account/bob":   {Account: "bob", Pending: []contract.Range{change(3)}},
	})
	_, ended := runs(t, map[string]contract.AccountSyncInput{
		"crm/account/dora": failing(terminated, contract.ClassRefused, "400", time.Hour, change(4)),
	})
	_, err := ended.Get(t.Context(), terminated)
	require.ErrorIs(t, err, parked.ErrNotParked)
	a, err := accounts.Get(t.Context(), "alice")
	require.NoError(t, err)
	require.Equal(t, []contract.Range{change(1), change(2)}, a.Pending)
	require.Equal(t, 2, a.Changes)
	require.Equal(t, now.Add(time.Minute), a.NextTry)
	require.Equal(t, now, a.FirstAt)
	for _, key := range []string{"bob", "carol"} {
		_, err = accounts.Get(t.Context(), key)
		require.ErrorIs(t, err, parked.ErrNotParked, key)
	}
	var listed []string
	require.NoError(t, accounts.Each(t.Context(), func(a parked.Account) error { listed = append(listed, a.Account); return nil }))
	require.Equal(t, []string{"alice"}, listed, "bob has gone on since visibility was written")
}

func TestFilter(t *testing.T) {
	a := parked.Account{Failure: contract.Failure{Class: contract.ClassRefused, Reason: "400 Bad Request", Since: now.Add(-time.Hour)}}
	for _, c := range []struct {
		filter parked.Filter
		want   bool
	}{
		{parked.Filter{}, true},
		{parked.Filter{Class: contract.ClassRefused}, true},
		{parked.Filter{Class: contract.ClassTransient}, false},
		{parked.Filter{ReasonContains: "bad req"}, true},
		{parked.Filter{ReasonContains: "401"}, false},
		{parked.Filter{OlderThan: time.Hour}, true},
		{parked.Filter{OlderThan: time.Hour + 1}, false},
		{parked.Filter{Class: contract.ClassRefused, OlderThan: 2 * time.Hour}, false},
	} {
		require.Equal(t, c.want, c.filter.Matches(a, now), "%+v", c.filter)
	}
}

// Both wake the run, which a plain signal would not, and a discard names the
// changes that were shown.
func TestRetryAndDiscardWakeTheRun(t *testing.T) {
	in := failing("alice", contract.ClassRefused, "400", time.Hour, change(1), change(2))
	in.Replays = []contract.ReplayRequest{{ID: "r1", Operator: "ada"}}
	c, accounts := runs(t, map[string]contract.AccountSyncInput{"crm/account/alice": in})
	expect := func(signal string, payload any) {
		c.On("SignalWithStartWorkflow", mock.Anything, "crm/account/alice", signal, payload,
			mock.MatchedBy(func(o client.StartWorkflowOptions) bool { return o.TaskQueue == "queue" && o.StartDelay == 0 }),
			contract.AccountSync, contract.AccountSyncInput{Account: "alice"}).Once().
			Return(func(context.Context, string, string, any, client.StartWorkflowOptions, any, ...any) client.WorkflowRun {
				return nil
			}, nil)
	}
	expect(contract.SignalRetry, nil)
	require.NoError(t, accounts.Retry(t.Context(), "alice"))
	require.ErrorIs(t, accounts.Retry(t.Context(), "carol"), parked.ErrNotParked)

	a, err := accounts.Get(t.Context(), "alice")
	require.NoError(t, err)
	require.Equal(t, []string{"r1"}, a.Replays)
	expect(contract.SignalDiscard, contract.Discard{Ranges: []contract.Range{change(1), change(2)}, Replays: []string{"r1"}, Operator: "ada", Reason: "test data"})
	require.NoError(t, accounts.Discard(t.Context(), a, "ada", "test data"))
}
