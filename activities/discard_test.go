package activities

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

func TestRecordDiscard(t *testing.T) {
	f := newFixture(t)
	record := func() error {
		suite := testsuite.WorkflowTestSuite{}
		suite.SetLogger(slogAdapter{})
		env := suite.NewTestActivityEnvironment()
		New(f.cfg, Dependencies{Upstream: f, Store: f.store, Health: f.health, Metrics: f.metrics, Log: discard()}).Register(env)
		_, err := env.ExecuteActivity(contract.RecordDiscard, contract.Discarded{
			Account: "secret-account", Number: 2, Dropped: []contract.Range{f.changed(0, 7)}, Operator: "ada", Reason: "test data", At: f.server, Tries: 9,
		})
		return err
	}
	require.NoError(t, record())
	d := f.store.discards[0]
	require.Equal(t, "default-test-run-id/discard-2", d.ID)
	require.Equal(t, []string{"ada", "test data"}, []string{d.Operator, d.Reason})
	require.Equal(t, 9, d.Tries)
	require.Len(t, d.Dropped, 1)
	require.EqualValues(t, 1, f.metrics.all()["sync.outcomes outcome:discarded"])

	var e *temporal.ApplicationError
	f.store.writeErr = func() error { return errOut }
	err := record()
	require.ErrorAs(t, err, &e)
	require.False(t, e.NonRetryable(), "until it is on record")
	require.NotContains(t, err.Error(), "secret-account")
	f.store.writeErr = func() error {
		return &store.Error{Kind: store.ErrRefused, Reason: "bad", Err: errors.New("secret-account")}
	}
	err = record()
	require.ErrorAs(t, err, &e)
	require.True(t, e.NonRetryable())
	require.NotContains(t, err.Error(), "secret-account")
	require.Empty(t, f.calls)
}
