package budget

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// suspended returns t as a machine sees it that was suspended for d until then:
// the wall clock is right, the monotonic one stood still.
func suspended(t time.Time, d time.Duration) time.Time {
	type layout struct { // of a time.Time that has a monotonic reading
		wall      uint64
		monotonic int64
	}
	(*layout)(unsafe.Pointer(&t)).monotonic -= int64(d)
	return t
}

func TestElapsedIsByTheClockThatSaysMore(t *testing.T) {
	now := time.Now()
	resumed := suspended(now.Add(time.Minute), time.Minute)
	require.Zero(t, resumed.Sub(now), "the test's own machinery")
	require.Equal(t, time.Minute, elapsed(now, resumed))
	require.Equal(t, time.Hour, elapsed(now, suspended(now, -time.Hour)), "the wall clock was set back")
}

// What was granted before the machine was suspended has ended when it resumes.
func TestASuspensionEndsAShareAndAPermit(t *testing.T) {
	l := newLimiter(10)
	share := func() { l.share(grant{limit: 10, until: time.Now().Add(time.Minute), left: -1}, false, "") }
	share()
	p, err := l.Acquire(t.Context())
	require.NoError(t, err)
	l.grant.until = suspended(l.grant.until.Add(-time.Hour), -time.Hour)
	require.Equal(t, 1, l.usage().held, "the permit alone")
	require.ErrorIs(t, p.Start(), ErrStale)

	share()
	p, err = l.Acquire(t.Context())
	require.NoError(t, err)
	p.(*permit).at = suspended(p.(*permit).at.Add(-time.Second), -time.Second)
	require.ErrorIs(t, p.Start(), ErrStale)
}
