package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

func hashed(payload string) string {
	sum := sha256.Sum256([]byte(payload))
	return hex.EncodeToString(sum[:])
}

// TestReplayReport: every call that names the replay, alone or with others, and
// what it found; nobody else's.
func TestReplayReport(t *testing.T) {
	f := newFixture(t)
	f.sync("changed", "run-1", 0, `{"v":1}`, f.change(0, -30))
	f.sync("gone", "run-2", 0, `{"v":1}`, f.change(1, -30))
	f.sync("same", "run-3", 0, `{"v":1}`, f.change(2, -30))
	f.replayed("changed", "run-4", 10, `{"v":2}`, "r1")
	f.replayed("same", "run-5", 10, `{"v":1}`, "r0,r1")
	f.replayed("new", "run-6", 10, `{"v":1}`, "r1,r2")
	for _, call := range []struct {
		run    string
		second float64
		replay string
	}{{"run-7", 10, "r1"}, {"run-8", 20, "r3"}} {
		_, err := f.store.Write(t.Context(), store.Sync{Account: "gone", SyncID: call.run, Attempt: 1, CalledAt: f.at(call.second), Deleted: true, ReplayID: call.replay})
		require.NoError(t, err)
	}
	f.replayed("changed", "run-9", 5, `{"v":0}`, "r1") // fenced: a newer call had written
	f.sync("overtaken", "run-12", 20, `{"v":1}`, f.change(4, -30))
	f.sync("overtaken", "run-13", 5, `{"v":0}`, f.change(5, -30)) // fenced: it never stood in the row
	f.replayed("overtaken", "run-14", 40, `{"v":2}`, "r1")
	f.replayed("other", "run-10", 10, `{"v":1}`, "r10")
	f.sync("changed", "run-11", 30, `{"v":3}`, f.change(3, 0))

	report, err := f.log.Replay(t.Context(), "r1", f.window())
	require.NoError(t, err)
	for i := range report.Changed {
		require.False(t, report.Changed[i].SyncedAt.IsZero())
		report.Changed[i].SyncedAt = f.base
	}
	require.Equal(t, ReplayReport{ID: "r1", Calls: 6, Accounts: 5, Unchanged: 1, NotKept: 1, Changed: []ReplayedAccount{
		{Account: "changed", SyncedAt: f.base, SyncID: "run-4", Outcome: "written", Before: hashed(`{"v":1}`), After: hashed(`{"v":2}`)},
		{Account: "gone", SyncedAt: f.base, SyncID: "run-7", Outcome: "deleted", Before: hashed(`{"v":1}`)},
		{Account: "new", SyncedAt: f.base, SyncID: "run-6", Outcome: "written", After: hashed(`{"v":1}`), New: true},
		{Account: "overtaken", SyncedAt: f.base, SyncID: "run-14", Outcome: "written", Before: hashed(`{"v":1}`), After: hashed(`{"v":2}`)},
	}}, report)
	var out bytes.Buffer
	require.NoError(t, report.Print(&out))
	require.Contains(t, out.String(), "calls      6 of 5 accounts\n")
	require.Contains(t, out.String(), hashed(`{"v":1}`)+" -> "+hashed(`{"v":2}`))
	require.Contains(t, out.String(), "deleted  "+hashed(`{"v":1}`)+" -> none")
	require.Contains(t, out.String(), "not in the log -> ")

	// Gone before and gone now is no change.
	report, err = f.log.Replay(t.Context(), "r3", f.window())
	require.NoError(t, err)
	require.Equal(t, ReplayReport{ID: "r3", Calls: 1, Accounts: 1, Unchanged: 1, Changed: []ReplayedAccount{}}, report)
	report, err = f.log.Replay(t.Context(), "r", f.window())
	require.NoError(t, err)
	require.Zero(t, report.Calls)
}

// TestReplayReportOfWhatMayBeMissing: a row names replays as far as they fit, so
// one that names many may lack this one; a short one does not.
func TestReplayReportOfWhatMayBeMissing(t *testing.T) {
	f := newFixture(t)
	long, other := strings.Repeat("l", 32), strings.Repeat("o", 31)
	f.replayed("a", "run-1", 10, `{}`, contract.ReplayIDs([]contract.ReplayRequest{{ID: long}, {ID: "r1"}, {ID: other}}))
	f.replayed("b", "run-2", 10, `{}`, contract.ReplayIDs([]contract.ReplayRequest{{ID: long}, {ID: other}, {ID: "r1"}}))
	f.replayed("c", "run-3", 10, `{}`, other)
	f.sync("d", "run-4", 10, `{}`, f.change(0, -30))
	report, err := f.log.Replay(t.Context(), "r1", f.window())
	require.NoError(t, err)
	require.Equal(t, 1, report.Calls)
	require.Equal(t, 1, report.MayLack, "b's")
	var out bytes.Buffer
	require.NoError(t, report.Print(&out))
	require.Contains(t, out.String(), "not known  1 calls for other replays may have served this one too")
}

// TestReplayReportLeavesDiscardsOut: a replay that was given up called nobody.
func TestReplayReportLeavesDiscardsOut(t *testing.T) {
	f := newFixture(t)
	f.sync("a", "run-1", 0, `{"v":1}`, f.change(0, -30))
	require.NoError(t, f.store.Discard(t.Context(), store.Discard{Account: "a", ID: "run-2/discard-1", ReplayID: "r1", Operator: "ada", Reason: "gone", At: f.at(20)}))
	report, err := f.log.Replay(t.Context(), "r1", f.window())
	require.NoError(t, err)
	require.Equal(t, ReplayReport{ID: "r1", Changed: []ReplayedAccount{}}, report)
}
