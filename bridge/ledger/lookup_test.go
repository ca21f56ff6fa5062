package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

func TestLookup(t *testing.T) {
	a := ledger.New().Assign(ledger.Start{Next: contract.Position{Epoch: -1, Offset: 10}})
	for _, offset := range []int64{10, 11, 13, 14, 15} {
		a.See(contract.Position{Offset: offset}, time.Unix(1, 0))
	}
	a.Done(contract.Position{Offset: 10})
	c, _ := a.Pending()
	a.Committed(c)
	a.Done(contract.Position{Offset: 11})
	a.Done(contract.Position{Offset: 14})
	for offset, want := range map[int64]ledger.Fate{
		9: ledger.Kept, 10: ledger.Kept, 11: ledger.Passed, 12: ledger.NoRecord, 13: ledger.Undone,
		14: ledger.Beyond, 15: ledger.Undone, 16: ledger.Unseen,
	} {
		require.Equal(t, want, a.Lookup(offset), "offset %d", offset)
	}
}
