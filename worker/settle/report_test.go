package settle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/store/emulator"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

var base = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return base.Add(time.Duration(seconds * float64(time.Second)))
}

func version(n int) contract.Version {
	v, err := contract.ParseVersion(fmt.Sprint(n))
	if err != nil {
		panic(err)
	}
	return v
}

func change(seconds float64, v contract.Version) contract.Range {
	return contract.Range{Count: 1, Oldest: at(seconds), Newest: at(seconds), Version: v}
}

func TestWhatIsKnownIsAnInterval(t *testing.T) {
	var a Ages
	a.Add(Call{Account: "a", CalledAt: at(30), Version: version(1), Covered: []contract.Range{change(0, version(1)), change(2, contract.Version{})}})
	a.Add(Call{Account: "b", CalledAt: at(30), Version: version(1), Unsettled: true, Newest: at(5)})
	a.Add(Call{Account: "b", CalledAt: at(31), Version: version(1), Unsettled: true, Newest: at(5)})
	a.Add(Call{Account: "b", CalledAt: at(33), Version: version(2), Covered: []contract.Range{change(5, version(2)), change(1, version(1))}})
	a.Add(Call{Account: "c", CalledAt: at(40), Version: version(2), Covered: []contract.Range{change(5, version(2))}})
	require.Equal(t, Report{
		Since: base, Calls: 5, Early: 2,
		AtMost:   Percentiles{Changes: 4, P50: 30, P90: 35, P99: 35, Max: 35},
		MoreThan: Percentiles{Changes: 1, P50: 26, P90: 26, P99: 26, Max: 26},
		Youngest: 28, Suggested: 26,
	}, a.Report(base))
	require.Equal(t, Report{Since: base}, new(Ages).Report(base))
}

// An answer that was too old says so of the newest change that it lacked, and of no
// change before or after that one.
func TestWhatWasLackedIsOneChange(t *testing.T) {
	for name, seconds := range map[string]float64{"before": 4, "after": 6} {
		var a Ages
		a.Add(Call{Account: "a", CalledAt: at(30), Version: version(1), Unsettled: true, Newest: at(5)})
		a.Add(Call{Account: "a", CalledAt: at(33), Version: version(2), Covered: []contract.Range{change(seconds, version(2))}})
		require.Zero(t, a.Report(base).MoreThan.Changes, name)
	}
	var a Ages
	a.Add(Call{Account: "a", CalledAt: at(30), Version: version(1), Unsettled: true, Newest: at(5)})
	merged := change(5, version(2))
	merged.Newest = at(8)
	a.Add(Call{Account: "a", CalledAt: at(33), Version: version(2), Covered: []contract.Range{merged}})
	require.Equal(t, 25.0, a.Report(base).MoreThan.Max, "the first of a range")
}

// An upstream whose lag is known, called at a settle time that is too small: the
// suggestion comes close to the lag's own 99.9%, from below, by no more than the
// time between two tries.
func TestSuggestionComesCloseToTheLag(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var a Ages
	for i := range 20_000 {
		account, lag := fmt.Sprint(i), 5+15*random.Float64() // 99.9%: 19.985
		age := 10.0
		for ; age < lag; age++ {
			a.Add(Call{Account: account, CalledAt: at(age), Version: version(1), Unsettled: true, Newest: at(0)})
		}
		a.Add(Call{Account: account, CalledAt: at(age), Version: version(2), Covered: []contract.Range{change(0, version(2))}})
	}
	r := a.Report(base)
	require.InDelta(t, 19.5, r.Suggested, 0.5)
	require.Equal(t, 20.0, r.AtMost.Max)
	require.InDelta(t, 10, r.AtMost.P50, 3)

	var enough Ages
	for i := range 1000 {
		enough.Add(Call{Account: fmt.Sprint(i), CalledAt: at(30), Version: version(1), Covered: []contract.Range{change(0, version(1))}})
	}
	require.Zero(t, enough.Report(base).Suggested, "nobody tried less, so nothing is said of it")
}

func TestReadsTheSyncLog(t *testing.T) {
	if os.Getenv(emulator.HostVariable) == "" {
		path, err := emulator.Find(t.Context())
		if errors.Is(err, emulator.ErrNotFound) {
			t.Skip(err)
		}
		require.NoError(t, err)
		running, err := emulator.Start(t.Context(), path)
		require.NoError(t, err)
		t.Cleanup(running.Stop)
		t.Setenv(emulator.HostVariable, running.Host)
	}
	cfg := store.Default()
	cfg.Database = fmt.Sprintf("projects/test/instances/test/databases/settle-%d", time.Now().UnixNano()%1e9)
	require.NoError(t, emulator.CreateDatabase(t.Context(), cfg.Database))
	s, err := store.Open(context.Background(), cfg)
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Check(t.Context()))
	sync := store.Sync{Account: "a", SyncID: "run 1", Attempt: 1, CalledAt: at(22), Payload: []byte(`{}`), Version: version(1)}
	require.NoError(t, s.Unsettled(t.Context(), sync, []contract.Range{change(0, version(2))}))
	sync.SyncID, sync.CalledAt, sync.Version, sync.Covered = "run 2", at(24), version(2), []contract.Range{change(0, version(2))}
	_, err = s.Write(t.Context(), sync)
	require.NoError(t, err)
	sync.SyncID, sync.CalledAt, sync.Version = "run 3", at(90), contract.Version{}
	_, err = s.Write(t.Context(), sync)
	require.NoError(t, err)

	r, err := Read(t.Context(), s.Client(), cfg.SyncsTable, time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.Equal(t, []int{2, 1}, []int{r.Calls, r.Early})
	require.Equal(t, []float64{24, 22, 22}, []float64{r.AtMost.Max, r.MoreThan.Max, r.Suggested})
	r, err = Read(t.Context(), s.Client(), cfg.SyncsTable, time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Zero(t, r.Calls)
	_, err = Read(t.Context(), s.Client(), "Elsewhere", base)
	require.ErrorContains(t, err, "read Elsewhere")
}
