package service

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// TestWhoseFailure: failures that were not charged to the account are everybody's.
func TestWhoseFailure(t *testing.T) {
	cause, _ := failure(nil)
	require.Empty(t, cause)
	cause, why := failure(&contract.Failure{Count: 3, Tries: 3, Class: contract.ClassTransient, Reason: "500"})
	require.Equal(t, CauseAccount, cause)
	require.Contains(t, why, "3 tries")
	cause, _ = failure(&contract.Failure{Count: 1, Tries: 9, Reason: "503"})
	require.Equal(t, CauseUpstream, cause)
}
