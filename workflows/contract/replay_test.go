package contract_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// The sync log's column holds 64 characters, commas included.
func TestReplayIDsStopWhereTheColumnEnds(t *testing.T) {
	ids := func(lengths ...int) string {
		var requests []contract.ReplayRequest
		for i, n := range lengths {
			requests = append(requests, contract.ReplayRequest{ID: strings.Repeat(string(rune('a'+i)), n)})
		}
		return contract.ReplayIDs(requests)
	}
	a, b := strings.Repeat("a", 32), strings.Repeat("b", 31)
	require.Equal(t, a+","+b, ids(32, 31), "64")
	require.Equal(t, a, ids(32, 32), "65")
	require.Equal(t, contract.ReplayIDsFull, len(ids(32, 32)), "the shortest that lacks one")
	require.Len(t, ids(contract.ReplayIDsFull-1, 32), 64, "a shorter one lacks none")
	require.Equal(t, a, ids(32, 32, 1), "the order is kept: none is skipped for a shorter one")
}
