package run

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// history answers every read with one event.
type history struct {
	workflowservice.WorkflowServiceClient // nil: what is not here is not called

	event *historypb.HistoryEvent
}

func (h history) GetWorkflowExecutionHistory(context.Context, *workflowservice.GetWorkflowExecutionHistoryRequest, ...grpc.CallOption) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	return &workflowservice.GetWorkflowExecutionHistoryResponse{History: &historypb.History{Events: []*historypb.HistoryEvent{h.event}}}, nil
}

var (
	eventTime = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	input     = contract.AccountSyncInput{
		Account: "alice",
		Covered: []contract.Range{{First: contract.Position{Offset: 3}, Last: contract.Position{Offset: 4}, Count: 2}},
		Pending: []contract.Range{{First: contract.Position{Offset: 7}, Last: contract.Position{Offset: 7}, Count: 1}},
		Failure: &contract.Failure{Parked: true},
	}
	undecodable = &commonpb.Payloads{Payloads: []*commonpb.Payload{{
		Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(`"of another kind"`),
	}}}
)

func encode(t *testing.T, value any) *commonpb.Payloads {
	t.Helper()
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(value)
	require.NoError(t, err)
	return payloads
}

func client(event *historypb.HistoryEvent) *Client {
	event.EventTime = timestamppb.New(eventTime)
	return &Client{Service: history{event: event}, Converter: converter.GetDefaultDataConverter()}
}

func started(input *commonpb.Payloads) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
			WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
				Input: input, FirstWorkflowTaskBackoff: durationpb.New(28 * time.Second),
			},
		},
	}
}

func TestStart(t *testing.T) {
	start, err := client(started(encode(t, input))).Start(t.Context(), "w", "r")
	require.NoError(t, err)
	require.Equal(t, Start{RunID: "r", Due: eventTime.Add(28 * time.Second), Input: input}, start)
}

// TestStartThatCannotBeDecoded: otherwise its account would wait for its retention
// to end.
func TestStartThatCannotBeDecoded(t *testing.T) {
	start, err := client(started(undecodable)).Start(t.Context(), "w", "r")
	require.NoError(t, err)
	require.Equal(t, Start{RunID: "r", Due: eventTime.Add(28 * time.Second)}, start)
	require.False(t, start.Input.Parked())
}

// TestContinuedRun covers what it lists as covered and nothing of what is pending.
func TestContinuedRun(t *testing.T) {
	continued := func(input *commonpb.Payloads) *historypb.HistoryEvent {
		return &historypb.HistoryEvent{
			EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
			Attributes: &historypb.HistoryEvent_WorkflowExecutionContinuedAsNewEventAttributes{
				WorkflowExecutionContinuedAsNewEventAttributes: &historypb.WorkflowExecutionContinuedAsNewEventAttributes{
					NewExecutionRunId: "next", Input: input, BackoffStartInterval: durationpb.New(12 * time.Second),
				},
			},
		}
	}
	end, err := client(continued(encode(t, input))).End(t.Context(), "w", "r", false)
	require.NoError(t, err)
	require.Equal(t, &End{
		Covered: input.Covered, Next: &Start{RunID: "next", Due: eventTime.Add(12 * time.Second), Input: input},
	}, end)

	end, err = client(continued(undecodable)).End(t.Context(), "w", "r", false)
	require.NoError(t, err)
	require.Contains(t, end.Broken, "undecodable")
	require.Empty(t, end.Covered)
	require.Nil(t, end.Next)
}

func TestCompletedRun(t *testing.T) {
	end, err := client(&historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes{
			WorkflowExecutionCompletedEventAttributes: &historypb.WorkflowExecutionCompletedEventAttributes{
				Result: encode(t, contract.AccountSyncResult{CalledAt: eventTime, Covered: input.Covered}),
			},
		},
	}).End(t.Context(), "w", "r", false)
	require.NoError(t, err)
	require.Equal(t, &End{Covered: input.Covered}, end)
}

func TestEventTimesAreTold(t *testing.T) {
	var seen []time.Time
	c := client(started(encode(t, input)))
	c.Seen = func(at time.Time) { seen = append(seen, at) }
	_, err := c.Start(t.Context(), "w", "r")
	require.NoError(t, err)
	end, err := c.End(t.Context(), "w", "r", false)
	require.NoError(t, err)
	require.Nil(t, end, "its last event is no end")
	require.Equal(t, []time.Time{eventTime, eventTime}, seen)
}
