package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/internal/lease"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

func TestDefaultSettingsAreThoseOfABridge(t *testing.T) {
	require.Equal(t, lease.DefaultConfig().Settings(config.DefaultSettle()), contract.DefaultSettings())
	require.Equal(t, contract.DefaultSettings(), contract.Settings{}.OrDefault())
	require.Equal(t, settings, settings.OrDefault())
}
