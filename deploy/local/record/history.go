package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

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
	return r.soFar(ctx, workflowID, runID)
}

// soFar returns what a run's history has now.
func (r *recorder) soFar(ctx context.Context, workflowID, runID string) (*historypb.History, error) {
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

// newDir returns the directory that a version's histories go to. One that is
// there already has recorded: a history that is recorded again by the code that
// it is to find faults in finds none.
func newDir(below, version string, now time.Time) (string, error) {
	switch {
	case version == "":
		return "", errors.New("-version is required, such as -version $(git describe --tags --always --dirty)")
	case strings.HasSuffix(version, "-dirty"):
		return "", fmt.Errorf("version %s has changes that are not committed: commit them first, so that the name says what has recorded", version)
	}
	there, err := filepath.Glob(filepath.Join(below, "*-"+version))
	if err != nil {
		return "", fmt.Errorf("version %q: %w", version, err)
	}
	if len(there) > 0 {
		return "", fmt.Errorf("version %s has recorded: %s; what a version has recorded is not recorded again", version, there[0])
	}
	return filepath.Join(below, now.UTC().Format(time.DateOnly)+"-"+version), nil
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
