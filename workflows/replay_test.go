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
// real server by each version that behaved in a new way: a change of a workflow
// that runs in flight would not survive fails here. The replayer keeps no state
// between workflow tasks' replays, as a worker whose cache has size 0.
//
// To record what is new: make record. What earlier versions have recorded stays:
// their runs are what a deployment finds.
func TestRecordedHistories(t *testing.T) {
	failing := 0
	for version, files := range recorded(t) {
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".json")
			t.Run(version+"/"+name, func(t *testing.T) {
				err := replay(t, file, 0)
				if strings.HasPrefix(name, mustFail) {
					failing++
					require.ErrorContains(t, err, "TMPRL1100", "non-determinism must be found")
					return
				}
				require.NoError(t, err)
			})
		}
	}
	require.Positive(t, failing, "a history that must fail shows that the others could")
}

// TestVersionsBefore holds the histories of versions that have been deployed: to
// record again over them, or to drop them, would hide what they find. What is
// recorded is added here.
func TestVersionsBefore(t *testing.T) {
	all := recorded(t)
	for version, files := range map[string]int{"2026-11-30-93e4594": 16, "2026-11-30-cd5b43e": 1, "2026-11-30-1df40f9": 5, "2026-11-30-8f5bc4a": 24} {
		require.Len(t, all[version], files, version)
	}
}

// recorded returns the files of all histories, by the version that made them.
func recorded(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "histories", "*", "*.json"))
	require.NoError(t, err)
	byVersion := map[string][]string{}
	for _, file := range files {
		version := filepath.Base(filepath.Dir(file))
		byVersion[version] = append(byVersion[version], file)
	}
	return byVersion
}

// TestRunsInFlight replays the beginning of each history, up to every event at
// which a worker may pick the run up: what a deployment finds in flight.
func TestRunsInFlight(t *testing.T) {
	for version, files := range recorded(t) {
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".json")
			if strings.HasPrefix(name, mustFail) {
				continue
			}
			t.Run(version+"/"+name, func(t *testing.T) {
				for _, event := range history(t, file, 0).GetEvents() {
					if event.GetWorkflowTaskStartedEventAttributes() != nil {
						require.NoError(t, replay(t, file, event.GetEventId()), "up to event %d", event.GetEventId())
					}
				}
			})
		}
	}
}

func replay(t *testing.T, file string, last int64) error {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{})
	require.NoError(t, err)
	workflows.Register(replayer)
	workflows.RegisterBudget(replayer)
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
