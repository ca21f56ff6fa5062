package contract_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

func TestAccountWorkflowID(t *testing.T) {
	for key, want := range map[string]string{
		"alice@example.com":      "crm/account/alice@example.com",
		"42":                     "crm/account/42",
		strings.Repeat("a", 180): "crm/account/" + strings.Repeat("a", 180),
		"Alice":                  "crm/account/x-3bc51062973c458d5a6f2d8d64a023246354ad7e064b1e4e009ec8a0699a3043",
	} {
		require.Equal(t, want, contract.AccountWorkflowID("crm", key))
	}
	for _, key := range []string{"a/b", "..%2f", "ALICE", "ä", "a\x00b", "x-1", strings.Repeat("a", 181), strings.Repeat("a", 512)} {
		require.Regexp(t, `^crm/account/x-[0-9a-f]{64}$`, contract.AccountWorkflowID("crm", key), "%q", key)
	}
}

// TestWorkflowIDsNeverCollide, not even where a database folds case.
func TestWorkflowIDsNeverCollide(t *testing.T) {
	key := rapid.OneOf(rapid.StringMatching(`[xX]-[0-9a-f]{0,64}`), rapid.StringMatching(`[a-zA-Z0-9._:@/-]{1,8}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		a, b := key.Draw(t, "a"), key.Draw(t, "b")
		if a != b && strings.EqualFold(contract.AccountWorkflowID("p", a), contract.AccountWorkflowID("p", b)) {
			t.Fatalf("%q and %q share a workflow ID", a, b)
		}
	})
}

func TestTopicIDText(t *testing.T) {
	var id contract.TopicID
	require.NoError(t, id.UnmarshalText([]byte("TQxNkhZoTTu9dTNsHn9GxQ")))
	require.Equal(t, "TQxNkhZoTTu9dTNsHn9GxQ", id.String())
	require.ErrorContains(t, id.UnmarshalText([]byte("short")), "want 22 characters")
}
