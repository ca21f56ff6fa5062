package contract_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestPayloads holds every payload against its golden file: bridge and worker of
// different versions exchange them, and histories keep them.
func TestPayloads(t *testing.T) {
	settings := contract.Settings{
		Settle: contract.Duration(21 * time.Second), Delay: contract.Duration(30 * time.Second),
		AttemptLease: contract.Duration(29250 * time.Millisecond), Heartbeat: contract.Duration(10 * time.Second), ParkAfter: 5,
	}
	pending := []contract.Range{changes(7, 9, 11, 12.5)}
	covered := []contract.Range{changes(1, 6, 0, 9)}
	failure := &contract.Failure{
		Count: 2, Tries: 3, Since: at(30), Last: at(60), Class: contract.ClassTransient, Reason: "upstream answered 500", Parked: true, ParkedTries: 1,
	}
	through := []contract.Through{{Source: accounts, Position: contract.Position{Epoch: 4, Offset: 6}}}
	for name, payload := range map[string]any{
		"changes":             contract.Changes{Ranges: pending, Settings: settings},
		"account-sync-input":  contract.AccountSyncInput{Account: "alice", Pending: pending, Covered: covered, Failure: failure, Settings: settings},
		"account-sync-start":  contract.AccountSyncInput{Account: "alice", Settings: settings},
		"account-sync-result": contract.AccountSyncResult{CalledAt: at(30), Covered: covered, Outcome: contract.OutcomeWritten},
		"sync-input":          contract.SyncInput{Account: "alice", Pending: pending, NotBefore: at(41), LastFailure: at(30), Settings: settings},
		"sync-result":         contract.SyncResult{Outcome: contract.OutcomeSkipped, CalledAt: at(30), Through: through},
		"failed-attempt": contract.FailedAttempt{
			Class: contract.ClassThrottled, Reason: "upstream answered 429", At: at(41), RetryAfter: contract.Duration(time.Minute), Charged: true,
		},
		"discard":           contract.Discard{Ranges: pending, Operator: "ada", Reason: "test data"},
		"discarded":         contract.Discarded{Account: "alice", Number: 1, Dropped: pending, Operator: "ada", Reason: "test data", At: at(90), Tries: 6},
		"changes-versioned": contract.Changes{Ranges: []contract.Range{versioned(changes(7, 9, 11, 12.5), "42")}, Settings: settings},
		"sync-result-versioned": contract.SyncResult{
			Outcome: contract.OutcomeWritten, CalledAt: at(30), Version: version("2026-11-30T12:00:00.5Z"),
		},
		"sync-input-again": contract.SyncInput{Account: "alice", Pending: pending, NotBefore: at(41), LastFailure: at(30), Tries: 2, Settings: settings},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".json")
			got, err := json.MarshalIndent(payload, "", "  ")
			require.NoError(t, err)
			if *update {
				require.NoError(t, os.WriteFile(file, append(got, '\n'), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(got))
		})
	}
}
