package run

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// MinServerVersion is the oldest Temporal server that names the run which took
// a signal; without that the bridge cannot tell what covers a change.
const MinServerVersion = "1.31.0"

// CheckServer fails if the server is older than [MinServerVersion]. Servers that
// do not give a version of three numbers (Temporal Cloud) are taken as new.
func (c *Client) CheckServer(ctx context.Context) error {
	info, err := c.Service.GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		return fmt.Errorf("ask Temporal for its version: %w", err)
	}
	if older(info.GetServerVersion(), MinServerVersion) {
		return fmt.Errorf("the Temporal server is version %s; upgrade it to %s or newer, which names the run that took a signal",
			info.GetServerVersion(), MinServerVersion)
	}
	return nil
}

// older compares versions of three numbers, ignoring what follows a dash.
func older(version, least string) bool {
	have, ok := numbers(version)
	want, _ := numbers(least)
	if !ok {
		return false
	}
	for i := range have {
		if have[i] != want[i] {
			return have[i] < want[i]
		}
	}
	return false
}

func numbers(version string) (n [3]int, ok bool) {
	version, _, _ = strings.Cut(version, "-")
	parts := strings.Split(version, ".")
	if len(parts) != len(n) {
		return n, false
	}
	for i, part := range parts {
		value, err := strconv.Atoi(part)
		if err != nil {
			return n, false
		}
		n[i] = value
	}
	return n, true
}

// ClockReading is Temporal's time between two readings of this process's clock.
type ClockReading struct {
	Before, Server, After time.Time
}

// Offset returns by how much this process's clock is certainly ahead of
// Temporal's (positive) or behind it (negative); zero where the time the request
// took explains the difference.
func (r ClockReading) Offset() time.Duration {
	if ahead := r.Before.Sub(r.Server); ahead > 0 {
		return ahead
	}
	return min(0, r.After.Sub(r.Server))
}

// ReadClock starts a throw-away run under workflowID and reads the time that
// Temporal gave to its start event, the only way to its clock that every
// deployment has. No worker ever sees the run: it waits out its start delay until
// it is terminated, or times out by itself.
func (c *Client) ReadClock(ctx context.Context, workflowID, requestID string) (ClockReading, error) {
	const lifetime = 10 * time.Second
	reading := ClockReading{Before: time.Now()}
	started, err := c.Service.StartWorkflowExecution(ctx, &workflowservice.StartWorkflowExecutionRequest{
		Namespace:                c.Namespace,
		WorkflowId:               workflowID,
		WorkflowType:             &commonpb.WorkflowType{Name: "ClockProbe"},
		TaskQueue:                &taskqueuepb.TaskQueue{Name: c.TaskQueue},
		Identity:                 c.Identity,
		RequestId:                requestID,
		WorkflowExecutionTimeout: durationpb.New(lifetime),
		WorkflowStartDelay:       durationpb.New(2 * lifetime),
		WorkflowIdConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING,
	})
	reading.After = time.Now()
	if err != nil {
		return ClockReading{}, fmt.Errorf("start clock probe: %w", err)
	}
	execution := &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: started.GetRunId()}
	history, err := c.Service.GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: c.Namespace, Execution: execution, MaximumPageSize: 1, SkipArchival: true,
	})
	if err != nil {
		return ClockReading{}, fmt.Errorf("read clock probe: %w", err)
	}
	if len(history.GetHistory().GetEvents()) == 0 {
		return ClockReading{}, fmt.Errorf("read clock probe: empty history")
	}
	// Its time is up in any case, so a failure here changes nothing.
	_, _ = c.Service.TerminateWorkflowExecution(ctx, &workflowservice.TerminateWorkflowExecutionRequest{
		Namespace: c.Namespace, WorkflowExecution: execution, Reason: "clock has been read", Identity: c.Identity,
	})
	reading.Server = history.GetHistory().GetEvents()[0].GetEventTime().AsTime()
	return reading, nil
}
