package contract_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// TestBudgetPayloads holds the budget's payloads against their golden files.
func TestBudgetPayloads(t *testing.T) {
	breaker := contract.Breaker{Open: true, Since: at(40), Cause: "401 for everybody", Epoch: 3}
	workers := []contract.BudgetWorker{{
		Worker: "7@host-a-2f", Seq: 12, Demand: 40, Granted: 10, Lease: 14, SeenAt: at(41), Expires: at(56),
	}}
	set := 20
	for name, payload := range map[string]any{
		"share-request": contract.ShareRequest{
			Worker: "7@host-a-2f", Started: at(0), Seq: 13, RPS: 30, Held: 14, Demand: 40, Throttled: 2, RetryAfter: contract.Duration(3 * time.Second),
			Breaker: &contract.BreakerEvent{Open: true, Cause: "401 for everybody", Epoch: 2},
		},
		"share-request-alone": contract.ShareRequest{
			Worker: "7@host-a-2f", Started: at(0), Age: contract.Duration(41 * time.Second), Seq: 13, RPS: 30, Demand: 40, Succeeded: at(39),
			Breaker: &contract.BreakerEvent{Open: true, Cause: "401 for everybody", Since: at(38), Epoch: 2},
		},
		"budget-input-alone": contract.BudgetInput{State: &contract.BudgetState{
			Now: at(41), OpenAt: at(15), Configured: 30, ConfiguredAt: at(0), Allowed: 1, AllowedAt: at(41), AllowedBefore: 1,
			Breaker: breaker, NextProbe: at(46), OpenedBy: "7@host-a-2f", FailingSince: at(38),
			Workers: []contract.BudgetWorker{{
				Worker: "7@host-a-2f", Seq: 12, Demand: 40, SeenAt: at(41), Expires: at(56), Succeeded: at(37), NextProbe: at(46),
				Out: &contract.Breaker{Open: true, Since: at(40), Cause: "this worker alone: 401"},
			}},
		}},
		"share":      contract.Share{Calls: 1, Probe: true, Renew: contract.Duration(4500 * time.Millisecond), Limit: 20, Leased: 14, Breaker: breaker, WaitsUntil: at(42), PausedUntil: at(44)},
		"set-budget": contract.SetBudget{RPS: 20},
		"budget-input": contract.BudgetInput{State: &contract.BudgetState{
			Now: at(41), OpenAt: at(15), Configured: 30, ConfiguredAt: at(0), Set: &set,
			Allowed: 0.5, AllowedAt: at(41), DecreasedAt: at(38), AllowedBefore: 1, PausedUntil: at(44),
			Breaker: breaker, NextProbe: at(46), Workers: workers,
		}},
		"budget-start": contract.BudgetInput{},
		"budget-status": contract.BudgetStatus{
			At: at(41), Budget: 20, Set: true, Configured: 30, Limit: 0, Leased: 14, WaitsUntil: at(42), PausedUntil: at(44), Breaker: breaker, Workers: workers,
		},
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
