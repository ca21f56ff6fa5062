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

// TestUndetectableIsRefused: every lease that is over MAX_DETECTION_DELAY, with
// what to change.
func TestUndetectableIsRefused(t *testing.T) {
	for lever, change := range map[string]func(c *service.Config){
		"set it to 2664 or less, or raise EXECUTORS": func(c *service.Config) { c.Dispatch.Executors, c.Dispatch.SignalTimeout = 4, 200*time.Millisecond },
		"LOOP_LEASE=10m0s: exceeds MAX_DETECTION":    func(c *service.Config) { c.Loop.Lease = 10 * time.Minute },
		"four times SIGNAL_TIMEOUT":                  func(c *service.Config) { c.Loop.Lease = 7 * time.Second },
		"set PARK_AFTER to 5 or less":                func(c *service.Config) { c.Lease.ParkAfter = 50 },
	} {
		c := validConfig()
		change(&c)
		require.ErrorContains(t, c.Validate(), lever)
	}
}
