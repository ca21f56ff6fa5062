package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/internal/lease"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

func TestBatchLaw(t *testing.T) {
	b := lease.Batch{Size: 500, Concurrency: 1, Timeout: 2 * time.Second, Overhead: 100 * time.Millisecond}
	require.Equal(t, 1050*time.Second, b.Bound())
	require.Equal(t, 1575*time.Second, b.Lease())
	require.Equal(t, 95, b.Largest(5*time.Minute))
	b.Concurrency = 64
	require.Equal(t, 8*2100*time.Millisecond, b.Bound(), "eight rounds of 64")
}

// TestLargestBatchIsTheLargest: it passes, and one more would not.
func TestLargestBatchIsTheLargest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := lease.Batch{
			Concurrency: rapid.IntRange(1, 100).Draw(t, "concurrency"),
			Timeout:     time.Duration(rapid.IntRange(1, 10_000).Draw(t, "timeout")) * time.Millisecond,
			Overhead:    time.Duration(rapid.IntRange(0, 1000).Draw(t, "overhead")) * time.Millisecond,
		}
		limit := time.Duration(rapid.IntRange(1, 600).Draw(t, "limit")) * time.Second
		b.Size = b.Largest(limit)
		if b.Lease() > limit {
			t.Fatalf("%d takes %s, more than %s", b.Size, b.Lease(), limit)
		}
		if b.Size++; b.Lease() <= limit {
			t.Fatalf("%d would pass too: %s of %s", b.Size, b.Lease(), limit)
		}
	})
}

func TestDefaultsPass(t *testing.T) {
	c := lease.DefaultConfig()
	require.NoError(t, c.Validate())
	require.Equal(t, contract.Settings{
		Settle: contract.Duration(21 * time.Second), Delay: contract.Duration(30 * time.Second),
		AttemptLease: contract.Duration(29250 * time.Millisecond), Heartbeat: contract.Duration(10 * time.Second), ParkAfter: 5,
	}, c.Settings(config.DefaultSettle()))
}

func TestUndetectableIsRefusedWithTheLever(t *testing.T) {
	c := lease.DefaultConfig()
	c.ParkAfter = 6
	require.ErrorContains(t, c.Validate(), "set PARK_AFTER to 5 or less")
	c.Upstream = 10 * time.Minute
	require.ErrorContains(t, c.Validate(), "10m0s UPSTREAM_TIMEOUT")
	c.Upstream = 0
	require.ErrorContains(t, c.Validate(), "UPSTREAM_TIMEOUT=0s: must be positive: nothing may wait for ever")
}
