package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// State is what a run is at.
type State struct {
	Open bool
	// TaskQueue is where its workers are to come from.
	TaskQueue string
	// TaskAttempt is which attempt its workflow task is at, from 1; 0 if it has
	// none to do.
	TaskAttempt int32
	// Activity is its Sync that has begun and not ended; nil if there is none.
	Activity *Activity
}

// Activity is a Sync that is under way.
type Activity struct {
	// Started is when a worker took it; zero while it waits in the queue, or
	// for its next try.
	Started time.Time
	// Attempt counts from 1; hand-backs count.
	Attempt int32
	// LastFailure is why the attempt before ended, with its error type.
	LastFailure, LastFailureType string
}

// Describe returns what the run is at. It returns [ErrGone] for a run that
// Temporal no longer has.
func (c *Client) Describe(ctx context.Context, workflowID, runID string) (State, error) {
	response, err := c.Service.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: c.Namespace,
		Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID},
	})
	if err != nil {
		return State{}, c.readError(err, "state", workflowID, runID)
	}
	state := State{
		Open:        response.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
		TaskQueue:   response.GetExecutionConfig().GetTaskQueue().GetName(),
		TaskAttempt: response.GetPendingWorkflowTask().GetAttempt(),
	}
	for _, pending := range response.GetPendingActivities() {
		state.Activity = &Activity{Attempt: pending.GetAttempt()}
		if pending.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED {
			state.Activity.Started = pending.GetLastStartedTime().AsTime()
		}
		state.Activity.LastFailure, state.Activity.LastFailureType = describeFailure(pending.GetLastFailure())
	}
	return state, nil
}

func describeFailure(f *failurepb.Failure) (message, kind string) {
	return f.GetMessage(), f.GetApplicationFailureInfo().GetType()
}

// LastPoll returns when a worker last asked the task queue for work, for runs or
// for their activities, whichever is longer ago; zero if none has within the
// minutes that Temporal remembers. A worker asks at least every minute.
func (c *Client) LastPoll(ctx context.Context, queue string) (time.Time, error) {
	var last time.Time
	for i, kind := range []enumspb.TaskQueueType{enumspb.TASK_QUEUE_TYPE_WORKFLOW, enumspb.TASK_QUEUE_TYPE_ACTIVITY} {
		response, err := c.Service.DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
			Namespace: c.Namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: queue}, TaskQueueType: kind,
		})
		if notFound := (*serviceerror.NotFound)(nil); errors.As(err, &notFound) {
			return time.Time{}, nil // nobody has ever asked
		}
		if err != nil {
			return time.Time{}, fmt.Errorf("pollers of task queue %s: %w", queue, err)
		}
		var newest time.Time
		for _, poller := range response.GetPollers() {
			if at := poller.GetLastAccessTime().AsTime(); at.After(newest) {
				newest = at
			}
		}
		if i == 0 || newest.Before(last) {
			last = newest
		}
	}
	return last, nil
}
