package health

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/activities/budget"
)

// told is a budget whose breaker others turn as well, and that notes what it is
// told.
type told struct {
	budget.Budget
	outage budget.Outage
	log    []string
	since  time.Time // of the latest Suspend
}

func (t *told) Suspect() { t.log = append(t.log, "suspect") }
func (t *told) Suspend(cause string, since time.Time) {
	t.log = append(t.log, "suspend: "+cause)
	t.since = since
}
func (t *told) Resume(time.Time)      { t.log = append(t.log, "resume") }
func (t *told) Outage() budget.Outage { return t.outage }

func TestTheBudgetIsToldWhatIsFoundOut(t *testing.T) {
	b := new(told)
	m := NewMonitor(b, quiet)
	open(m)
	require.Equal(t, append(slices.Repeat([]string{"suspect"}, openAfter-suspectAfter), "suspend: 401 for everybody"), b.log)
	m.Succeeded("a", time.Unix(1, 0))
	require.Equal(t, "resume", b.log[len(b.log)-1])
}

// Another worker's probe succeeded: the failures of the outage say nothing about
// the time after it.
func TestAnOutageThatOthersEndedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(told)
		m := NewMonitor(b, quiet)
		b.outage = budget.Outage{Open: true, Cause: "401 for everybody"}
		open(m)
		b.outage, b.log = budget.Outage{}, nil
		m.Failed("a", denied)
		time.Sleep(suspectFor)
		require.Empty(t, b.log)
		m.Failed("b", denied)
		require.Equal(t, []string{"suspect"}, b.log)
	})
}
