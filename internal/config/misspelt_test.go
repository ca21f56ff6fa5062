package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/contrib/envconfig"

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
		"TEMPORAL_NAMESPCE":    "TEMPORAL_NAMESPACE",
		"TEMPORAL_ADRESS":      "TEMPORAL_ADDRESS",
		"TEMPORAL_API_KEYS":    "TEMPORAL_API_KEY",
		"TEMPRAL_PROFILE":      "TEMPORAL_PROFILE",
		"temporal_namespace":   "TEMPORAL_NAMESPACE",

		"TEMPORAL_TLS_CLIENT_CERTPATH":  "TEMPORAL_TLS_CLIENT_CERT_PATH",
		"UPSTREAM_TLS_CLIENT_CERT_PATH": "UPSTREAM_URL", // ours, not Temporal's of nearly that name
	} {
		require.Equal(t, []config.Misspelling{{Name: name, Nearest: nearest}}, config.Misspelt(known, []string{"PATH", name, "HOME"}), name)
	}
	require.Empty(t, config.Misspelt(known, []string{
		"SETTLE_TIME", "KAFKA_SASL_PASSWORD_FILE", "PATH", "HOME", "LINES", "TEMPORAL_ADDRESS", "SPANNER_EMULATOR_HOST",
		"KAFKA_SERVICE_HOST", "KAFKA_PORT", "KAFKA_PORT_9092_TCP_ADDR", "KAFKA_SERVICE_PORT_CLIENT", "LOG_DIR", "MAX_MEMORY",
		"TEMPORAL_GRPC_META_TENANT", "TEMPORAL_GRPC_META_ADDRESS", "TEMPORAL_CLI_ADDRESS", "TEMPORAL_CLI_NAMESPACE", "TEMPORAL_CLI_TLS_CERT",
		"TEMPORAL_CLI_SHOW_STACKS", "TEMPORAL_CONFIG_DIR", "TEMPORAL_ROOT", "TEMPORAL_ENVIRONMENT", "TEMPORAL_DEBUG", "TEMPORAL_VERSION",
		"TEMPORAL_ENV", "TEMPORAL_TAG", "TEMPORAL_SERVICE_HOST", "TEMPORAL_PORT_7233_TCP_ADDR", "TEMPORAL_TLS_CERT", "TEMPORAL_UI_PORT",
	}), "other people's variables")
	require.Empty(t, config.Misspelt(nil, []string{"KAFKA_BROKER"}))
}

// asked collects the variables that somebody looks up.
type asked struct{ names []string }

func (a *asked) Environ() []string { return nil }

func (a *asked) LookupEnv(name string) (string, bool) {
	a.names = append(a.names, name)
	return "", false
}

func TestMisspeltKnowsWhatTemporalReads(t *testing.T) {
	var temporal asked
	_, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{EnvLookup: &temporal})
	require.NoError(t, err)
	require.Subset(t, temporal.names, []string{"TEMPORAL_NAMESPACE", "TEMPORAL_CONFIG_FILE", "TEMPORAL_PROFILE"})
	for _, name := range temporal.names {
		require.Empty(t, config.Misspelt([]string{"PIPELINE"}, []string{name}))
		if name == "TEMPORAL_TLS" {
			continue // too short to tell slips from other words
		}
		require.Equal(t, []config.Misspelling{{Name: name + "S", Nearest: name}}, config.Misspelt([]string{"PIPELINE"}, []string{name + "S"}))
	}
}

func TestMisspeltFlagNamesTheNearest(t *testing.T) {
	_, _, err := load(t, nil, "--cuont", "3")
	require.EqualError(t, err, "there is no flag --cuont; did you mean --count?")
	_, _, err = load(t, nil, "--nothing-like-it")
	require.EqualError(t, err, "there is no flag --nothing-like-it; --help lists all")
}
