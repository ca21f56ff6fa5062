package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Errors that operators meet.
var (
	ErrNotFound = errors.New("there is no such replay")
	ErrOver     = errors.New("the replay is over")
)

// Control starts replays and looks after them.
type Control struct {
	Client    client.Client
	Converter converter.DataConverter
	Namespace string
	Pipeline  string
	TaskQueue string // of the workers
}

// View is a replay as operators see it.
type View struct {
	contract.ReplayState
	WorkflowID string    `json:"workflow_id"`
	Status     string    `json:"status"` // running, completed, canceled, failed, terminated
	StartedAt  time.Time `json:"started_at"`
	EndedAt    time.Time `json:"ended_at,omitzero"`
	// Waiting says why nothing moves; empty where something does.
	Waiting string `json:"waiting,omitempty"`
}

// Open reports whether the replay goes on.
func (v View) Open() bool { return v.EndedAt.IsZero() }

// Start starts a replay. An ID is used once while Temporal remembers it.
func (c *Control) Start(ctx context.Context, in contract.ReplayInput) error {
	_, err := c.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: contract.ReplayWorkflowID(c.Pipeline, in.ID), TaskQueue: c.TaskQueue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		Memo:                                     map[string]any{"operator": in.Operator, "reason": in.Reason, "what": in.What},
	}, contract.Replay, in)
	if err != nil {
		return fmt.Errorf("start replay %s: %w", in.ID, err)
	}
	return nil
}

// Pause, Resume and Cancel do so; a replay that is over is an error.
func (c *Control) Pause(ctx context.Context, id string) error {
	return c.signal(ctx, id, contract.SignalPause)
}

// Resume is described at [Control.Pause].
func (c *Control) Resume(ctx context.Context, id string) error {
	return c.signal(ctx, id, contract.SignalResume)
}

// Cancel is described at [Control.Pause]. Accounts that are under way are still
// called.
func (c *Control) Cancel(ctx context.Context, id string) error {
	if err := c.open(ctx, id); err != nil {
		return err
	}
	return c.wrap(c.Client.CancelWorkflow(ctx, contract.ReplayWorkflowID(c.Pipeline, id), ""), "cancel", id)
}

func (c *Control) signal(ctx context.Context, id, name string) error {
	if err := c.open(ctx, id); err != nil {
		return err
	}
	return c.wrap(c.Client.SignalWorkflow(ctx, contract.ReplayWorkflowID(c.Pipeline, id), "", name, nil), name, id)
}

// open tells a replay that is over from one that never was.
func (c *Control) open(ctx context.Context, id string) error {
	description, err := c.Client.DescribeWorkflowExecution(ctx, contract.ReplayWorkflowID(c.Pipeline, id), "")
	if err == nil && description.GetWorkflowExecutionInfo().GetCloseTime() != nil {
		return ErrOver
	}
	return c.wrap(err, "describe", id)
}

func (c *Control) wrap(err error, what, id string) error {
	if notFound := (*serviceerror.NotFound)(nil); errors.As(err, &notFound) {
		return ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("%s replay %s: %w", what, id, err)
	}
	return nil
}

// Show returns a replay. How far it has come is what the slice under way last
// told, or what the workflow knows.
func (c *Control) Show(ctx context.Context, id string) (View, error) {
	workflowID := contract.ReplayWorkflowID(c.Pipeline, id)
	description, err := c.Client.DescribeWorkflowExecution(ctx, workflowID, "")
	if err != nil {
		return View{}, c.wrap(err, "describe", id)
	}
	info := description.GetWorkflowExecutionInfo()
	v := View{
		WorkflowID: workflowID, StartedAt: info.GetStartTime().AsTime(),
		Status: strings.ToLower(strings.TrimPrefix(info.GetStatus().String(), "WORKFLOW_EXECUTION_STATUS_")),
	}
	if info.GetCloseTime() != nil {
		v.EndedAt = info.GetCloseTime().AsTime()
	}
	value, err := c.Client.QueryWorkflow(ctx, workflowID, info.GetExecution().GetRunId(), contract.QueryReplay)
	if err == nil {
		err = value.Get(&v.ReplayState)
	}
	if err != nil {
		return View{}, fmt.Errorf("ask replay %s how far it is (a worker answers): %w", id, err)
	}
	if !v.Began.IsZero() {
		v.StartedAt = v.Began // not of the run that goes on with it
	}
	for _, pending := range description.GetPendingActivities() {
		var beat contract.ReplayProgress
		if pending.GetHeartbeatDetails() != nil && c.Converter.FromPayloads(pending.GetHeartbeatDetails(), &beat) == nil {
			v.Progress = beat
		}
		switch state, failure := pending.GetState(), pending.GetLastFailure(); {
		case state == enumspb.PENDING_ACTIVITY_STATE_STARTED && beat.WaitsFor != "":
			v.Waiting = fmt.Sprintf("account %q is still under way, and with %d done that come after it none is begun (worker audit %s)",
				beat.WaitsFor, len(beat.Ahead), beat.WaitsFor)
		case failure != nil:
			v.Waiting = failure.GetMessage()
		case state == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED:
			v.Waiting = "no bridge has taken it"
		}
	}
	return v, nil
}

// List returns the replays that Temporal remembers, newest first.
func (c *Control) List(ctx context.Context) ([]View, error) {
	query := fmt.Sprintf("WorkflowType = '%s' AND WorkflowId STARTS_WITH '%s'", contract.Replay, contract.ReplayWorkflowPrefix(c.Pipeline))
	views, seen := []View{}, map[string]bool{}
	var page []byte
	for {
		response, err := c.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Namespace: c.Namespace, Query: query, NextPageToken: page})
		if err != nil {
			return nil, fmt.Errorf("list replays: %w", err)
		}
		for _, execution := range response.GetExecutions() {
			id := strings.TrimPrefix(execution.GetExecution().GetWorkflowId(), contract.ReplayWorkflowPrefix(c.Pipeline))
			if seen[id] {
				continue // an earlier run of the same
			}
			seen[id] = true
			v, err := c.Show(ctx, id)
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			views = append(views, v)
		}
		if page = response.GetNextPageToken(); len(page) == 0 {
			return views, nil
		}
	}
}
