package service_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// temporal is Temporal as far as the bridge sees it. A run completes, with all
// that it was signalled, when it falls due, unless stuck.
type temporal struct {
	workflowservice.WorkflowServiceClient // nil: what is not here is not called

	mu      sync.Mutex
	open    map[string]*execution // by workflow ID
	all     map[string]*execution // by run ID
	signals []contract.Changes
	stuck   bool
	absent  bool // no worker polls
	// activity is what every run is at, queue where its workers are to come from,
	// task the attempt of its workflow task, 0 for none.
	activity *workflowpb.PendingActivityInfo
	queue    string
	task     int32
	ahead    time.Duration // of its clock
	// hang is called with each request's context; it may wait for its end.
	hang func(ctx context.Context)
	// before is called with each request's name; it may hang, and fail it.
	before func(request string) error
}

type execution struct {
	runID   string
	began   time.Time
	delay   time.Duration
	input   *commonpb.Payloads
	pending []contract.Range
	ended   chan struct{}
	close   *historypb.HistoryEvent
}

func newTemporal() *temporal {
	return &temporal{open: map[string]*execution{}, all: map[string]*execution{}, queue: "crm"}
}

// sdk is the client that the bridge gets.
type sdk struct {
	client.Client // nil, likewise
	service       *temporal
}

func (c sdk) WorkflowService() workflowservice.WorkflowServiceClient { return c.service }

func (f *temporal) request(ctx context.Context, name string) error {
	f.mu.Lock()
	before, hang := f.before, f.hang
	f.mu.Unlock()
	if hang != nil {
		hang(ctx)
	}
	if before != nil {
		if err := before(name); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (f *temporal) set(before func(request string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = before
}

// run returns the workflow's open run.
func (f *temporal) run(workflowID string) *execution {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open[workflowID]
}

func (f *temporal) signalled() (changes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.signals {
		changes += contract.Count(s.Ranges)
	}
	return changes
}

func (f *temporal) begin(workflowID string, input *commonpb.Payloads, delay time.Duration) *execution {
	e := &execution{
		runID: fmt.Sprintf("run-%d", len(f.all)+1), began: time.Now(), delay: delay, input: input,
		ended: make(chan struct{}),
	}
	f.open[workflowID], f.all[e.runID] = e, e
	return e
}

func (f *temporal) GetSystemInfo(ctx context.Context, _ *workflowservice.GetSystemInfoRequest, _ ...grpc.CallOption) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{ServerVersion: "1.32.1"}, f.request(ctx, "info")
}

// StartWorkflowExecution starts clock probes only.
func (f *temporal) StartWorkflowExecution(ctx context.Context, in *workflowservice.StartWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.StartWorkflowExecutionResponse, error) {
	if err := f.request(ctx, "clock"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.begin(in.GetWorkflowId(), nil, time.Hour)
	e.began = e.began.Add(f.ahead)
	return &workflowservice.StartWorkflowExecutionResponse{RunId: e.runID}, nil
}

func (f *temporal) TerminateWorkflowExecution(context.Context, *workflowservice.TerminateWorkflowExecutionRequest, ...grpc.CallOption) (*workflowservice.TerminateWorkflowExecutionResponse, error) {
	return &workflowservice.TerminateWorkflowExecutionResponse{}, nil
}

func (f *temporal) SignalWorkflowExecution(ctx context.Context, in *workflowservice.SignalWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.SignalWorkflowExecutionResponse, error) {
	if err := f.request(ctx, "signal"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.open[in.GetWorkflowExecution().GetWorkflowId()]
	if e == nil {
		return nil, serviceerror.NewNotFound("no run")
	}
	f.take(e, in.GetInput())
	return &workflowservice.SignalWorkflowExecutionResponse{Link: &commonpb.Link{Variant: &commonpb.Link_WorkflowEvent_{
		WorkflowEvent: &commonpb.Link_WorkflowEvent{RunId: e.runID},
	}}}, nil
}

func (f *temporal) take(e *execution, input *commonpb.Payloads) {
	var changes contract.Changes
	if err := converter.GetDefaultDataConverter().FromPayloads(input, &changes); err != nil {
		panic(err)
	}
	e.pending = append(e.pending, changes.Ranges...)
	f.signals = append(f.signals, changes)
}

func (f *temporal) SignalWithStartWorkflowExecution(ctx context.Context, in *workflowservice.SignalWithStartWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.SignalWithStartWorkflowExecutionResponse, error) {
	if err := f.request(ctx, "signal-with-start"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := in.GetWorkflowId()
	e, running := f.open[id]
	if !running {
		e = f.begin(id, in.GetInput(), in.GetWorkflowStartDelay().AsDuration())
		if !f.stuck {
			time.AfterFunc(e.delay, func() { f.complete(id, e) })
		}
	}
	f.take(e, in.GetSignalInput())
	return &workflowservice.SignalWithStartWorkflowExecutionResponse{RunId: e.runID, Started: !running}, nil
}

func (f *temporal) complete(id string, e *execution) {
	f.mu.Lock()
	defer f.mu.Unlock()
	result, err := converter.GetDefaultDataConverter().ToPayloads(contract.AccountSyncResult{CalledAt: time.Now(), Covered: e.pending})
	if err != nil {
		panic(err)
	}
	e.close = &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, EventTime: timestamppb.New(time.Now().Add(f.ahead)),
		Attributes: &historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes{
			WorkflowExecutionCompletedEventAttributes: &historypb.WorkflowExecutionCompletedEventAttributes{Result: result},
		},
	}
	delete(f.open, id)
	close(e.ended)
}

func (f *temporal) GetWorkflowExecutionHistory(ctx context.Context, in *workflowservice.GetWorkflowExecutionHistoryRequest, _ ...grpc.CallOption) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	end := in.GetHistoryEventFilterType() == enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT
	name := "start"
	if end {
		name = "end"
	}
	if err := f.request(ctx, name); err != nil {
		return nil, err
	}
	f.mu.Lock()
	e := f.all[in.GetExecution().GetRunId()]
	f.mu.Unlock()
	if e == nil {
		return nil, serviceerror.NewNotFound("gone")
	}
	if end && in.GetWaitNewEvent() {
		select {
		case <-e.ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Second):
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	event := e.close
	if !end {
		event = &historypb.HistoryEvent{
			EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, EventTime: timestamppb.New(e.began),
			Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
				WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
					Input: e.input, FirstWorkflowTaskBackoff: durationpb.New(e.delay),
				},
			},
		}
	}
	response := &workflowservice.GetWorkflowExecutionHistoryResponse{History: &historypb.History{}}
	if event != nil {
		response.History.Events = append(response.History.Events, event)
	}
	return response, nil
}

func (f *temporal) DescribeWorkflowExecution(ctx context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if err := f.request(ctx, "describe"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.all[in.GetExecution().GetRunId()]
	if e == nil {
		return nil, serviceerror.NewNotFound("gone")
	}
	response := &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING},
		ExecutionConfig:       &workflowpb.WorkflowExecutionConfig{TaskQueue: &taskqueuepb.TaskQueue{Name: f.queue}},
	}
	if e.close != nil {
		response.WorkflowExecutionInfo.Status = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	}
	if f.task > 0 {
		response.PendingWorkflowTask = &workflowpb.PendingWorkflowTaskInfo{Attempt: f.task}
	}
	if f.activity != nil {
		response.PendingActivities = append(response.PendingActivities, f.activity)
	}
	return response, nil
}

func (f *temporal) DescribeTaskQueue(ctx context.Context, in *workflowservice.DescribeTaskQueueRequest, _ ...grpc.CallOption) (*workflowservice.DescribeTaskQueueResponse, error) {
	if err := f.request(ctx, "pollers"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	response := &workflowservice.DescribeTaskQueueResponse{}
	if !f.absent && in.GetTaskQueue().GetName() == "crm" {
		response.Pollers = []*taskqueuepb.PollerInfo{{LastAccessTime: timestamppb.Now(), Identity: "worker"}}
	}
	return response, nil
}
