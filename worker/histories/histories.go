package histories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// History is one run's history.
type History struct {
	WorkflowID string
	RunID      string
	Type       string
	Open       bool
	Build      string // that made the last decision in it; "" where it did not say
	Events     *historypb.History
	Name       string // of the file it came from; "" for one from Temporal
}

// String names the history in one line.
func (h History) String() string {
	if h.Name != "" {
		return h.Name
	}
	return h.WorkflowID + "/" + h.RunID
}

// Sampler downloads recent histories of a pipeline.
type Sampler struct {
	Client    client.Client
	Namespace string
	Pipeline  string
	Types     []string  // workflow types
	Each      int       // histories of each type, build and state (open, closed)
	Since     time.Time // closed since then, or open
}

// lookFor bounds how many runs are looked at to find different builds.
const lookFor = 20

// Sample downloads up to Each histories, newest first, of every combination of
// type, build and state that there is among the newest runs.
func (s *Sampler) Sample(ctx context.Context) ([]History, error) {
	var all []History
	for _, kind := range s.Types {
		for _, state := range []string{"ExecutionStatus = 'Running'", "ExecutionStatus != 'Running' AND CloseTime >= '" + s.Since.UTC().Format(time.RFC3339) + "'"} {
			found, err := s.sample(ctx, kind, state)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}

func (s *Sampler) sample(ctx context.Context, kind, state string) ([]History, error) {
	query := fmt.Sprintf("WorkflowType = '%s' AND %s AND WorkflowId STARTS_WITH '%s/'", kind, state, s.Pipeline)
	response, err := s.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: s.Namespace, Query: query, PageSize: int32(s.Each * lookFor),
	})
	if err != nil {
		return nil, fmt.Errorf("list runs where %s: %w", query, err)
	}
	var found []History
	builds := map[string]int{}
	for _, execution := range response.GetExecutions() {
		h := History{WorkflowID: execution.GetExecution().GetWorkflowId(), RunID: execution.GetExecution().GetRunId(), Type: kind}
		h.Events, err = s.download(ctx, h.WorkflowID, h.RunID)
		if notFound := (*serviceerror.NotFound)(nil); errors.As(err, &notFound) {
			continue // retention was quicker
		}
		if err != nil {
			return nil, fmt.Errorf("read history of %s: %w", h, err)
		}
		h.Build, h.Open = build(h.Events), execution.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
		if !decided(h.Events) || builds[h.Build] == s.Each {
			continue
		}
		builds[h.Build]++
		found = append(found, h)
	}
	return found, nil
}

func (s *Sampler) download(ctx context.Context, workflowID, runID string) (*historypb.History, error) {
	history := &historypb.History{}
	events := s.Client.GetWorkflowHistory(ctx, workflowID, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return nil, err
		}
		history.Events = append(history.Events, event)
	}
	return history, nil
}

// decided reports whether a workflow task has completed: there is nothing to
// replay in a run that still waits for its first.
func decided(h *historypb.History) bool {
	return slices.ContainsFunc(h.GetEvents(), func(e *historypb.HistoryEvent) bool {
		return e.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
	})
}

// reset reports whether the run was made by a reset.
func reset(h *historypb.History) bool {
	return slices.ContainsFunc(h.GetEvents(), func(e *historypb.HistoryEvent) bool {
		return e.GetWorkflowTaskFailedEventAttributes().GetCause() == enumspb.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW
	})
}

// build returns the build that completed the last workflow task.
func build(h *historypb.History) string {
	for _, e := range slices.Backward(h.GetEvents()) {
		done := e.GetWorkflowTaskCompletedEventAttributes()
		if done == nil {
			continue
		}
		if id := done.GetDeploymentVersion().GetBuildId(); id != "" {
			return id
		}
		//lint:ignore SA1019 it is what workers without versioning report
		return done.GetWorkerVersion().GetBuildId()
	}
	return ""
}

// Failure is a history that this build does not replay.
type Failure struct {
	History string `json:"history"`
	Type    string `json:"type"`
	Build   string `json:"build,omitempty"` // that made it
	// Event is the event that does not fit, its type with it; 0 where the error
	// names none.
	Event     int64  `json:"event,omitempty"`
	EventType string `json:"event_type,omitempty"`
	Error     string `json:"error"`
}

// Report is the result of a verification.
type Report struct {
	Replayed map[string]int `json:"replayed"` // by type, build and state
	// LeftOut are runs of Budget that an operator's reset made. Such a run ends
	// itself once it is no longer replaying, which no replay does again; and nothing
	// is left to replay in it by then.
	LeftOut  int       `json:"left_out,omitempty"`
	Failures []Failure `json:"failures"`
}

// Verify replays every history against the workflows that register registers.
// An error is one of this program; what does not replay is in the report.
func Verify(histories []History, dataConverter converter.DataConverter, register func(worker.WorkflowRegistry)) (Report, error) {
	report := Report{Replayed: map[string]int{}, Failures: []Failure{}}
	quiet := log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	for _, h := range histories {
		if h.Type == contract.Budget && reset(h.Events) {
			report.LeftOut++
			continue
		}
		replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DataConverter: dataConverter})
		if err != nil {
			return report, fmt.Errorf("replayer: %w", err)
		}
		register(replayer)
		report.Replayed[h.label()]++
		if err := replayer.ReplayWorkflowHistory(quiet, h.Events); err != nil {
			report.Failures = append(report.Failures, failure(h, err))
		}
	}
	return report, nil
}

func (h History) label() string {
	state, build := "closed", h.Build
	if h.Open {
		state = "open"
	}
	if build == "" {
		build = "unknown"
	}
	return h.Type + " " + state + ", build " + build
}

// The SDK's errors name the event that does not fit in text only: its type, and
// the workflow task that it came from, which is the event before it or a few
// before.
var (
	eventType = regexp.MustCompile(`(?:history event is|missing replay command for) (\w+)`)
	fromTask  = regexp.MustCompile(`WorkflowTaskCompletedEventId:(\d+)`)
)

func failure(h History, err error) Failure {
	f := Failure{History: h.String(), Type: h.Type, Build: h.Build, Error: err.Error()}
	kind, task := eventType.FindStringSubmatch(f.Error), fromTask.FindStringSubmatch(f.Error)
	if kind == nil {
		return f
	}
	f.EventType = kind[1]
	after := int64(0)
	if task != nil {
		after, _ = strconv.ParseInt(task[1], 10, 64) // digits
	}
	for _, e := range h.Events.GetEvents() {
		if e.GetEventId() > after && e.GetEventType().String() == f.EventType {
			f.Event = e.GetEventId()
			break
		}
	}
	return f
}

// Save writes the histories as JSON files to dir, to be replayed by other builds.
func Save(dir string, histories []History) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save histories: %w", err)
	}
	for _, h := range histories {
		text, err := protojson.Marshal(h.Events)
		if err != nil {
			return fmt.Errorf("save history of %s: %w", h, err)
		}
		file := filepath.Join(dir, h.Type+"-"+h.RunID+".json")
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return fmt.Errorf("save history of %s: %w", h, err)
		}
	}
	return nil
}

// Load reads the histories that Save wrote, or that Temporal's own tools did, from
// dir and what is below it, each by its path there.
func Load(dir string) ([]History, error) {
	var all []History
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".json" {
			return err
		}
		h, err := load(file)
		if err != nil {
			return err
		}
		if h.Name, err = filepath.Rel(dir, file); err != nil {
			return err
		}
		all = append(all, h)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load histories: %w", err)
	}
	return all, nil
}

func load(file string) (History, error) {
	reader, err := os.Open(file)
	if err != nil {
		return History{}, err
	}
	defer reader.Close() //nolint:errcheck // only read
	events, err := client.HistoryFromJSON(reader, client.HistoryJSONOptions{})
	if err != nil {
		return History{}, fmt.Errorf("%s: %w", file, err)
	}
	if len(events.GetEvents()) == 0 {
		return History{}, fmt.Errorf("%s: there are no events in it", file)
	}
	started := events.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
	last := events.GetEvents()[len(events.GetEvents())-1].GetEventType()
	return History{
		Name: filepath.Base(file), Type: started.GetWorkflowType().GetName(), RunID: started.GetOriginalExecutionRunId(),
		WorkflowID: started.GetWorkflowId(), Build: build(events), Open: !ends(last), Events: events,
	}, nil
}

// ends reports whether an event of the type is a run's last.
func ends(event enumspb.EventType) bool {
	name := event.String()
	return strings.HasPrefix(name, "WorkflowExecution") && slices.Contains(
		[]string{"Completed", "Failed", "TimedOut", "Canceled", "Terminated", "ContinuedAsNew"}, strings.TrimPrefix(name, "WorkflowExecution"))
}
