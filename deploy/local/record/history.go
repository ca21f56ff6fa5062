package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

func startOptions(account string) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{TaskQueue: pipeline, Memo: map[string]any{contract.MemoAccount: account}}
}

// write waits for the runs of a chain to close and writes each history to its
// file. It is an error if the chain is longer or shorter than the files.
func (r *recorder) write(ctx context.Context, workflowID, runID string, files []string) error {
	for i, file := range files {
		history, err := r.read(ctx, workflowID, runID)
		if err != nil {
			return err
		}
		if err := r.save(file, history); err != nil {
			return err
		}
		last := history.GetEvents()[len(history.GetEvents())-1]
		runID = last.GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId()
		if continued := i+1 < len(files); continued != (runID != "") {
			return fmt.Errorf("run %s ended with %s; is the scenario still what it was?", file, last.GetEventType())
		}
	}
	return nil
}

// read returns the history of a run once it has closed.
func (r *recorder) read(ctx context.Context, workflowID, runID string) (*historypb.History, error) {
	wait := r.temporal.GetWorkflowHistory(ctx, workflowID, runID, true, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	if _, err := wait.Next(); err != nil {
		return nil, fmt.Errorf("wait for run %s of %s: %w", runID, workflowID, err)
	}
	history := new(historypb.History)
	events := r.temporal.GetWorkflowHistory(ctx, workflowID, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return nil, fmt.Errorf("read run %s of %s: %w", runID, workflowID, err)
		}
		history.Events = append(history.Events, event)
	}
	return history, nil
}

func (r *recorder) file(name string) string { return filepath.Join(r.dir, name+".json") }

func (r *recorder) save(name string, history *historypb.History) error {
	text, err := temporalproto.CustomJSONMarshalOptions{Indent: "  "}.Marshal(history)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.file(name), append(text, '\n'), 0o644)
}

// spoil writes a history that must not replay: that of a workflow which called
// its activity by another name.
func (r *recorder) spoil(from, to string) error {
	file, err := os.Open(r.file(from))
	if err != nil {
		return err
	}
	defer file.Close()
	history, err := client.HistoryFromJSON(file, client.HistoryJSONOptions{})
	if err != nil {
		return fmt.Errorf("decode %s: %w", from, err)
	}
	for _, event := range history.GetEvents() {
		if scheduled := event.GetActivityTaskScheduledEventAttributes(); scheduled != nil {
			scheduled.ActivityType.Name = "Renamed"
		}
	}
	return r.save(to, history)
}
