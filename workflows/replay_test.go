package workflows_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/quiesce-io/quiesce/workflows"
)

// mustFail is what the names of histories begin with that no longer replay.
const mustFail = "must-fail-"

// TestRecordedHistories replays a history of each behaviour, recorded from a
// real server: a change of the workflow that runs in flight would not survive
// fails here. The replayer keeps no state between workflow tasks' replays, as a
// worker whose cache has size 0.
//
// To record: go run ./record in deploy/local.
func TestRecordedHistories(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "histories", "*.json"))
	require.NoError(t, err)
	failing := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			err := replay(t, file, 0)
			if strings.HasPrefix(name, mustFail) {
				failing++
				require.ErrorContains(t, err, "TMPRL1100", "non-determinism must be found")
				return
			}
			require.NoError(t, err)
		})
	}
	require.Greater(t, len(files), 10, "recorded histories")
	require.Positive(t, failing, "a history that must fail shows that the others could")
}

// TestRunsInFlight replays the beginning of each history, up to every event at
// which a worker may pick the run up: what a deployment finds in flight.
func TestRunsInFlight(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "histories", "*.json"))
	require.NoError(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if strings.HasPrefix(name, mustFail) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, event := range history(t, file, 0).GetEvents() {
				if event.GetWorkflowTaskStartedEventAttributes() != nil {
					require.NoError(t, replay(t, file, event.GetEventId()), "up to event %d", event.GetEventId())
				}
			}
		})
	}
}

func replay(t *testing.T, file string, last int64) error {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{})
	require.NoError(t, err)
	workflows.Register(replayer)
	return replayer.ReplayWorkflowHistory(quiet, history(t, file, last))
}

// history reads a recorded history up to event last; 0: all of it.
func history(t *testing.T, file string, last int64) *historypb.History {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	h, err := client.HistoryFromJSON(f, client.HistoryJSONOptions{LastEventID: last})
	require.NoError(t, err)
	return h
}

// quiet drops what the replayer logs; the error it returns says it all.
var quiet = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
