package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

func TestBudgetSetRefusesWhatIsNoRate(t *testing.T) {
	for _, rps := range []string{"-1", "many", "1.5", "1000000"} {
		_, stderr, code := invoke(t, map[string]string{"PIPELINE": "crm", "TEMPORAL_ADDRESS": "127.0.0.1:1", "START_TIMEOUT": "10ms"}, "budget", "set", "--", rps)
		require.Equal(t, process.ExitUsage, code, stderr)
		require.Contains(t, stderr, "RPS="+rps)
	}
}

func TestBudgetIsPrinted(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	status := contract.BudgetStatus{
		At: at, Budget: 20, Set: true, Configured: 30, Leased: 14,
		Breaker: contract.Breaker{Open: true, Since: at.Add(-time.Minute), Cause: "401 for everybody"},
		Workers: []contract.BudgetWorker{{Worker: "7@host-a-2f", Demand: 40, Granted: 10, Lease: 14, SeenAt: at.Add(-time.Second), Expires: at.Add(14 * time.Second), Out: &contract.Breaker{Open: true, Since: at.Add(-time.Hour), Cause: "this worker alone: 401"}}},
	}
	var out bytes.Buffer
	require.NoError(t, printBudget(&process.Invocation{Stdout: &out}, status))
	require.Equal(t, `budget   20 calls a second (set by an operator; UPSTREAM_RPS is 30)
limit    0: probes only
leased   14
breaker  open for 1m0s: 401 for everybody

WORKER       SHARE  LEASE  DEMAND  SEEN    EXPIRES
7@host-a-2f  10     14     40      1s ago  in 14s

upstream is out for 7@host-a-2f, for 1h0m0s: this worker alone: 401
`, out.String())
}
