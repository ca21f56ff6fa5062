package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/config"
)

func TestMisspelt(t *testing.T) {
	known := []string{"KAFKA_BROKERS", "KAFKA_SASL_PASSWORD", "SETTLE_TIME", "SETTLE_DELAY", "PIPELINE", "EXECUTORS", "LINGER", "UPSTREAM_URL", "SPANNER_DATABASE"}
	for name, nearest := range map[string]string{
		"KAFKA_BROKER":         "KAFKA_BROKERS",
		"KAFKA_BORKERS":        "KAFKA_BROKERS", // two neighbours swapped: one slip
		"KAFKA_SASL_PASS":      "KAFKA_SASL_PASSWORD",
		"SETTLE_DELAY_SECONDS": "SETTLE_DELAY",
		"SETLE_TIME":           "SETTLE_TIME",
		"PIPLINE":              "PIPELINE",
		"EXECUTOR":             "EXECUTORS",
		"settle_time":          "SETTLE_TIME",
		"UPSTREAM_URI":         "UPSTREAM_URL",
	} {
		require.Equal(t, []config.Misspelling{{Name: name, Nearest: nearest}}, config.Misspelt(known, []string{"PATH", name, "HOME"}), name)
	}
	require.Empty(t, config.Misspelt(known, []string{
		"SETTLE_TIME", "KAFKA_SASL_PASSWORD_FILE", "PATH", "HOME", "LINES", "TEMPORAL_ADDRESS", "SPANNER_EMULATOR_HOST",
		"KAFKA_SERVICE_HOST", "KAFKA_PORT", "KAFKA_PORT_9092_TCP_ADDR", "KAFKA_SERVICE_PORT_CLIENT", "LOG_DIR", "MAX_MEMORY",
	}), "other people's variables")
	require.Empty(t, config.Misspelt(nil, []string{"KAFKA_BROKER"}))
}

func TestMisspeltFlagNamesTheNearest(t *testing.T) {
	_, _, err := load(t, nil, "--cuont", "3")
	require.EqualError(t, err, "there is no flag --cuont; did you mean --count?")
	_, _, err = load(t, nil, "--nothing-like-it")
	require.EqualError(t, err, "there is no flag --nothing-like-it; --help lists all")
}
