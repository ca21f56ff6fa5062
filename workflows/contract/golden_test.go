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
	progress := contract.ReplayProgress{
		Next: contract.ReplayCursor{Range: 1, Offset: 7}, Ahead: []contract.ReplayCursor{{Range: 1, Offset: 9}}, Complete: true,
		Counts:  contract.ReplayCounts{Synced: 5, Unchanged: 3, Changed: 2, Fresh: 6, Parked: 1, Invalid: 4},
		Changed: []contract.ReplayChange{{Account: "alice", PayloadChange: contract.PayloadChange{Before: "0123456789ab", After: "ba9876543210"}}},
	}
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
		"discard-replays":   contract.Discard{Ranges: pending, Replays: []string{"r1", "r2"}, Operator: "ada", Reason: "test data"},
		"discarded-replays": contract.Discarded{Account: "alice", Number: 1, Dropped: pending, Operator: "ada", Reason: "test data", At: at(90), Tries: 6, ReplayID: "r1,r2"},
		"changes-versioned": contract.Changes{Ranges: []contract.Range{versioned(changes(7, 9, 11, 12.5), "42")}, Settings: settings},
		"sync-result-versioned": contract.SyncResult{
			Outcome: contract.OutcomeWritten, CalledAt: at(30), Version: version("2026-11-30T12:00:00.5Z"),
		},
		"account-sync-input-replay": contract.AccountSyncInput{Account: "alice", Settings: settings,
			Replays: []contract.ReplayRequest{{ID: "r2", Operator: "ada", Since: at(20)}}, Replayed: &contract.Replayed{IDs: []string{"r1"}, Outcome: contract.OutcomeUnchanged}},
		"account-sync-result-replay": contract.AccountSyncResult{CalledAt: at(30), Outcome: contract.OutcomeWritten,
			Replayed: &contract.Replayed{IDs: []string{"r1"}, Outcome: contract.OutcomeWritten, Payload: &contract.PayloadChange{Before: "0123456789ab", After: "ba9876543210"}}},
		"sync-input-replay": contract.SyncInput{Account: "alice", ReplayID: "r1,r2", ReplaySince: at(20), Settings: settings},
		"sync-result-replay": contract.SyncResult{Outcome: contract.OutcomeWritten, CalledAt: at(30),
			Payload: &contract.PayloadChange{Before: "0123456789ab", After: "ba9876543210"}},
		"replay-request":     contract.ReplayRequest{ID: "r1", Operator: "ada", Since: at(20)},
		"replay-request-old": contract.ReplayRequest{ID: "r1", Operator: "ada"},
		"replay-input": contract.ReplayInput{ID: "r1", Operator: "ada", Reason: "drill", What: "accounts/0 from 5 to 9", InFlight: 20, MaxPerSecond: 2.5,
			Ranges: []contract.ReplayRange{{Topic: "accounts", From: 5, To: 9}}, Began: at(20), Paused: true, Progress: progress},
		"replay-input-accounts": contract.ReplayInput{ID: "r1", Operator: "ada", Reason: "drill", What: "1 account", InFlight: 20, Accounts: []string{"alice"}},
		"replay-state": contract.ReplayState{ID: "r1", Operator: "ada", Reason: "drill", What: "accounts/0 from 5 to 9", Began: at(20), Accounts: 3,
			Ranges: []contract.ReplayRange{{Topic: "accounts", From: 5, To: 9}}, Paused: true, Progress: progress},
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
