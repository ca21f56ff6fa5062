package health

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/internal/telemetry"
)

// told is a budget whose breaker others turn as well, and that notes what it is
// told.
type told struct {
	budget.Budget
	outage budget.Outage
	log    []string
}

func (t *told) Suspect()              { t.log = append(t.log, "suspect") }
func (t *told) Suspend(cause string)  { t.log = append(t.log, "suspend: "+cause) }
func (t *told) Resume()               { t.log = append(t.log, "resume") }
func (t *told) Outage() budget.Outage { return t.outage }

func TestTheBudgetIsToldWhatIsFoundOut(t *testing.T) {
	b := new(told)
	m := NewMonitor(b, telemetry.Discard, slog.New(slog.NewTextHandler(io.Discard, nil)))
	for _, account := range []string{"a", "b", "a", "b", "a"} {
		m.Failed(account, "401")
	}
	require.Equal(t, []string{"suspect", "suspect", "suspect", "suspend: 401 for everybody"}, b.log)
	m.Succeeded("a", time.Unix(1, 0))
	require.Equal(t, "resume", b.log[4])
}

// Another worker's probe succeeded: the failures of the outage say nothing about
// the time after it.
func TestAnOutageThatOthersEndedIsForgotten(t *testing.T) {
	b := new(told)
	m := NewMonitor(b, telemetry.Discard, slog.New(slog.NewTextHandler(io.Discard, nil)))
	b.outage = budget.Outage{Open: true, Cause: "500 for everybody"}
	for _, account := range []string{"a", "b", "a", "b", "a"} {
		m.Failed(account, "500")
	}
	b.outage, b.log = budget.Outage{}, nil
	m.Failed("a", "500")
	require.Empty(t, b.log)
	m.Failed("b", "500")
	require.Equal(t, []string{"suspect"}, b.log)
}
