package run

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
)

func TestInvalid(t *testing.T) {
	require.True(t, Invalid(fmt.Errorf("signal x: %w", serviceerror.NewInvalidArgument("workflow ID is too long"))))
	require.False(t, Invalid(serviceerror.NewInvalidArgument("exceeded workflow execution limit for signal events")), "a limit is a wait")
	require.False(t, Invalid(serviceerror.NewPermissionDenied("no", "")))
	require.False(t, Invalid(serviceerror.NewNamespaceNotFound("accounts")))
	require.False(t, Invalid(errors.New("broken pipe")))
}

func TestOlder(t *testing.T) {
	for version, want := range map[string]bool{
		"1.30.9": true, "1.31.0": false, "1.32.1": false, "2.0.0": false, "1.31.0-rc.1": false, "0.99.99": true,
		"cloud": false, "": false, "1.5.0-server-1.28.0": true,
	} {
		require.Equal(t, want, older(version, MinServerVersion), version)
	}
}
