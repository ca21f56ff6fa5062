package service_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/bridge/service"
)

func validConfig() service.Config {
	c := service.DefaultConfig()
	c.Common.Pipeline = "crm"
	c.Kafka.Brokers, c.Kafka.Topics, c.Kafka.Intake.DeadLetterTopic = []string{"localhost:9092"}, []string{"changes"}, "dead"
	return c
}

func TestShortSessionIsWarnedAbout(t *testing.T) {
	c := validConfig()
	require.NoError(t, c.Validate())
	require.Empty(t, c.Warnings())
	c.Kafka.SessionTimeout = 6 * time.Second
	require.NoError(t, c.Validate(), "it is allowed")
	require.Len(t, c.Warnings(), 1)
	require.Contains(t, c.Warnings()[0], "KAFKA_SESSION_TIMEOUT=6s")
}

func TestLateSignalsAreWarnedAbout(t *testing.T) {
	c := validConfig()
	c.Dispatch.Linger, c.Dispatch.SignalInterval = 10*time.Second, 11*time.Second
	require.Empty(t, c.Warnings())
	c.Dispatch.Linger += time.Second
	require.NoError(t, c.Validate(), "it is allowed")
	require.Len(t, c.Warnings(), 1)
	require.Contains(t, c.Warnings()[0], "a change may reach its account's run 22s after")
	c = validConfig()
	c.Settle.Time, c.Settle.MaxClockSkew, c.Settle.Delay = 0, time.Millisecond, time.Millisecond
	require.Empty(t, c.Warnings(), "the defaults are as early as it gets")
}

// TestUndetectableIsRefused: every lease that is over MAX_DETECTION_DELAY, with
// what to change.
func TestUndetectableIsRefused(t *testing.T) {
	for lever, change := range map[string]func(c *service.Config){
		"set it to 2664 or less, or raise EXECUTORS": func(c *service.Config) { c.Dispatch.Executors, c.Dispatch.SignalTimeout = 4, 200*time.Millisecond },
		"LOOP_LEASE=10m0s: exceeds MAX_DETECTION":    func(c *service.Config) { c.Loop.Lease = 10 * time.Minute },
		"four times SIGNAL_TIMEOUT":                  func(c *service.Config) { c.Loop.Lease = 7 * time.Second },
		"at least 6s: a loop may wait 5s": func(c *service.Config) {
			c.Loop.Lease, c.Dispatch.SignalTimeout = 5*time.Second, time.Second
		},
		"less COMMIT_INTERVAL=1m0s": func(c *service.Config) { c.Loop.Lease, c.Kafka.CommitInterval = 5*time.Minute, time.Minute },
		"LOOP_LEASE=4m30s: exceeds MAX_DETECTION_DELAY=5m0s less the 31s": func(c *service.Config) {
			c.Loop.Lease = 270 * time.Second
		},
		"set PARK_AFTER to 5 or less": func(c *service.Config) { c.Lease.ParkAfter = 50 },
	} {
		c := validConfig()
		change(&c)
		require.ErrorContains(t, c.Validate(), lever)
		require.ErrorContains(t, c.ValidateLeases(), lever)
	}
	c := validConfig()
	c.Loop.Lease = 269 * time.Second
	require.NoError(t, c.Validate())
}
