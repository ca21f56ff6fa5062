package activities

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// bubble runs a test in fake time.
func bubble(t *testing.T, name string, test func(t *testing.T, f *fixture)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newFixture(t)) })
	})
}

func TestOneCallIsWritten(t *testing.T) {
	bubble(t, "settled", func(t *testing.T, f *fixture) {
		before := []contract.Through{{Source: contract.Source{TopicID: contract.TopicID{9}}, Position: contract.Position{Offset: 4}}}
		f.store.rows["secret-account"] = store.Row{CalledAt: f.server.Add(-time.Hour), Through: before, SyncID: "earlier"}
		f.attempt = 7
		late := f.changed(5*time.Second, 3)
		result, err := f.run(f.input(f.changed(40*time.Second, 1), f.changed(21*time.Second, 2), late))
		require.NoError(t, err)
		require.Equal(t, contract.SyncResult{Outcome: contract.OutcomeWritten, CalledAt: f.server.UTC(), Through: before}, result)
		require.Len(t, f.calls, 1)
		require.Len(t, f.store.syncs, 1)
		sync := f.store.syncs[0]
		require.Equal(t, "run", sync.SyncID)
		require.EqualValues(t, 7, sync.Attempt)
		require.Equal(t, 2, contract.Count(sync.Covered), "what has settled")
		require.Equal(t, []contract.Range{late}, sync.Pending)
		counts := f.metrics.all()
		require.EqualValues(t, 1, counts["sync.calls"])
		require.EqualValues(t, 2, counts["sync.changes"])
		require.EqualValues(t, 1, counts["sync.outcomes outcome:written"])
		require.EqualValues(t, 1, counts["budget.used"])
		require.Equal(t, 40*time.Second, f.metrics.timings["sync.staleness"])
		require.Contains(t, f.metrics.timings, "upstream.latency class:2xx")
	})
	bubble(t, "called when the call began, not when it was answered", func(t *testing.T, f *fixture) {
		f.fetch = func(context.Context, string) (upstream.Response, error) {
			time.Sleep(2 * time.Second)
			return upstream.Response{Status: 200, Body: []byte(`{}`)}, nil
		}
		during := f.changed(settle-time.Second, 2) // it settles while upstream answers
		result, err := f.run(f.input(f.changed(40*time.Second, 1), during))
		require.NoError(t, err)
		require.Equal(t, f.server.UTC(), result.CalledAt)
		require.Equal(t, []contract.Range{during}, f.store.syncs[0].Pending)
	})
	bubble(t, "what the row accounts for is neither covered by the call nor pending", func(t *testing.T, f *fixture) {
		told := f.changed(5*time.Second, 3) // again, with a later time
		f.store.rows["secret-account"] = store.Row{
			CalledAt: f.server.Add(-time.Hour), SyncID: "earlier",
			Through: []contract.Through{{Source: told.Source, Position: contract.Position{Offset: 3}}},
		}
		in := f.input(f.changed(40*time.Second, 4), told)
		in.NotBefore = f.server
		_, err := f.run(in)
		require.NoError(t, err)
		require.Empty(t, f.store.syncs[0].Pending)
		require.Equal(t, []contract.Through{{Source: told.Source, Position: contract.Position{Offset: 4}}}, f.store.rows["secret-account"].Through)
	})
	bubble(t, "deleted upstream", func(t *testing.T, f *fixture) {
		f.fetch = func(context.Context, string) (upstream.Response, error) {
			return upstream.Response{Status: 404, Deleted: true}, nil
		}
		result, err := f.run(f.input(f.changed(time.Minute, 1)))
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeDeleted, result.Outcome)
	})
	bubble(t, "fenced by a newer call", func(t *testing.T, f *fixture) {
		f.fetch = func(context.Context, string) (upstream.Response, error) {
			f.store.mu.Lock()
			defer f.store.mu.Unlock()
			f.store.rows["secret-account"] = store.Row{CalledAt: f.server.Add(time.Second), SyncID: "other"}
			return upstream.Response{Status: 200, Body: []byte(`{}`)}, nil
		}
		result, err := f.run(f.input(f.changed(time.Minute, 1)))
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeFenced, result.Outcome)
		require.EqualValues(t, 1, f.metrics.all()["sync.fenced"])
		require.Zero(t, f.metrics.all()["sync.changes"])
	})
}

func TestSettleDelayIsGuaranteed(t *testing.T) {
	bubble(t, "dispatched early: handed back", func(t *testing.T, f *fixture) {
		_, err := f.run(f.input(f.changed(10*time.Second, 1)))
		require.Equal(t, 20*time.Second, f.deferral(err))
		require.Empty(t, f.calls)
		require.EqualValues(t, 1, f.metrics.all()["sync.deferred reason:settle"])
	})
	bubble(t, "the last moment is slept", func(t *testing.T, f *fixture) {
		begin := time.Now()
		result, err := f.run(f.input(f.changed(delay-400*time.Millisecond, 1)))
		require.NoError(t, err)
		require.Equal(t, 400*time.Millisecond, f.calls[0].Sub(begin))
		require.Equal(t, f.server.Add(400*time.Millisecond).UTC(), result.CalledAt)
	})
	bubble(t, "a worker's clock 15 s fast", func(t *testing.T, f *fixture) {
		f.server = time.Now().Add(-15 * time.Second)
		_, err := f.run(f.input(f.changed(20*time.Second, 1)))
		require.Equal(t, 10*time.Second, f.deferral(err), "by the worker's clock it were due 5 s ago")
		result, err := f.run(f.input(f.changed(delay, 1)))
		require.NoError(t, err)
		require.Equal(t, f.server.UTC(), result.CalledAt)
	})
	bubble(t, "a worker's clock 15 s slow", func(t *testing.T, f *fixture) {
		f.server = time.Now().Add(15 * time.Second)
		result, err := f.run(f.input(f.changed(delay, 1)))
		require.NoError(t, err)
		require.Equal(t, f.server.UTC(), result.CalledAt)
	})
	bubble(t, "due, but nothing has settled", func(t *testing.T, f *fixture) {
		in := f.input(f.changed(5*time.Second, 1), f.changed(8*time.Second, 2))
		in.NotBefore = f.server
		_, err := f.run(in)
		require.Equal(t, 12*time.Second, f.deferral(err), "until the earliest settles")
		require.Empty(t, f.calls)
	})
	bubble(t, "settles within the last moment", func(t *testing.T, f *fixture) {
		in := f.input(f.changed(settle-100*time.Millisecond, 1))
		in.NotBefore = f.server
		result, err := f.run(in)
		require.NoError(t, err)
		require.Equal(t, f.server.Add(100*time.Millisecond).UTC(), result.CalledAt)
	})
}

func TestRowCheck(t *testing.T) {
	through := []contract.Through{{Source: contract.Source{TopicID: contract.TopicID{1}}, Position: contract.Position{Offset: 10}}}
	for _, c := range []struct {
		name    string
		row     func(f *fixture) store.Row
		pending func(f *fixture) []contract.Range
		skipped bool
		called  bool
		delay   time.Duration
	}{
		{
			name:    "covered by the row's time",
			row:     func(f *fixture) store.Row { return store.Row{CalledAt: f.server.Add(-time.Minute), Through: through} },
			pending: func(f *fixture) []contract.Range { return []contract.Range{f.changed(2*time.Minute, 99)} },
			skipped: true,
		},
		{
			name:    "covered by its positions",
			row:     func(f *fixture) store.Row { return store.Row{CalledAt: f.server.Add(-time.Hour), Through: through} },
			pending: func(f *fixture) []contract.Range { return []contract.Range{f.changed(time.Minute, 10)} },
			skipped: true,
		},
		{
			name:    "not settled for the row's call",
			row:     func(f *fixture) store.Row { return store.Row{CalledAt: f.server.Add(-time.Minute), Through: through} },
			pending: func(f *fixture) []contract.Range { return []contract.Range{f.changed(time.Minute+settle-1, 11)} },
			called:  true,
		},
		{
			name: "another topic's positions",
			row: func(f *fixture) store.Row {
				return store.Row{CalledAt: f.server.Add(-time.Hour), Through: []contract.Through{{Position: contract.Position{Offset: 99}}}}
			},
			pending: func(f *fixture) []contract.Range { return []contract.Range{f.changed(time.Minute, 1)} },
			called:  true,
		},
		{
			name: "what is settled is covered, the rest waits",
			row:  func(f *fixture) store.Row { return store.Row{CalledAt: f.server.Add(-time.Minute), Through: through} },
			pending: func(f *fixture) []contract.Range {
				return []contract.Range{f.changed(2*time.Minute, 1), f.changed(time.Second, 11)}
			},
			skipped: true,
		},
		{
			name:    "unsettled, but covered by its positions",
			row:     func(f *fixture) store.Row { return store.Row{CalledAt: f.server.Add(-time.Hour), Through: through} },
			pending: func(f *fixture) []contract.Range { return []contract.Range{f.changed(time.Second, 3)} },
			skipped: true,
		},
		{
			name: "one is covered, one is not",
			row:  func(f *fixture) store.Row { return store.Row{CalledAt: f.server.Add(-time.Hour), Through: through} },
			pending: func(f *fixture) []contract.Range {
				return []contract.Range{f.changed(time.Minute, 3), f.changed(time.Minute, 11)}
			},
			called: true,
		},
		{
			name:    "called in the future: no call, and its time proves nothing",
			row:     func(f *fixture) store.Row { return store.Row{CalledAt: f.server.Add(time.Minute), Through: through} },
			pending: func(f *fixture) []contract.Range { return []contract.Range{f.changed(30*time.Second, 99)} },
			delay:   time.Minute,
		},
		{
			name: "called in the future within the skew: taken at its word",
			row: func(f *fixture) store.Row {
				return store.Row{CalledAt: f.server.Add(300 * time.Millisecond)}
			},
			pending: func(f *fixture) []contract.Range {
				return []contract.Range{f.changed(20*time.Second, 99), f.changed(19800*time.Millisecond, 100)}
			},
			skipped: true, // of the two only the first has settled now, and the row covers it
		},
	} {
		bubble(t, c.name, func(t *testing.T, f *fixture) {
			row := c.row(f)
			row.SyncID = "earlier"
			f.store.rows["secret-account"] = row
			in := f.input(c.pending(f)...)
			in.NotBefore = f.server
			result, err := f.run(in)
			if c.delay > 0 {
				require.Equal(t, c.delay, f.deferral(err))
				require.Empty(t, f.calls)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.skipped, result.Outcome == contract.OutcomeSkipped)
			require.Equal(t, c.called, len(f.calls) == 1)
			require.Equal(t, row.Through, result.Through)
			if c.skipped {
				require.True(t, result.CalledAt.Equal(row.CalledAt))
				require.EqualValues(t, 1, f.metrics.all()["sync.skipped"])
				require.Zero(t, f.metrics.all()["budget.used"])
			}
		})
	}
}

func TestStoreOutBeforeTheCall(t *testing.T) {
	bubble(t, "out", func(t *testing.T, f *fixture) {
		f.store.readErr = func() error { return errOut }
		_, err := f.run(f.input(f.changed(time.Minute, 1)))
		require.InDelta(t, 3, f.deferral(err).Seconds(), 2)
		require.NotContains(t, err.Error(), "secret-account")
		require.Empty(t, f.calls)
		require.EqualValues(t, 1, f.metrics.all()["sync.deferred reason:store"])
	})
	bubble(t, "the row is refused", func(t *testing.T, f *fixture) {
		f.store.readErr = func() error { return &store.Error{Kind: store.ErrRefused, Reason: "bad"} }
		_, err := f.run(f.input(f.changed(time.Minute, 1)))
		require.Equal(t, contract.ClassRefused, f.failure(err).Class)
		require.Empty(t, f.calls)
	})
}

func TestStoreOutAfterTheCall(t *testing.T) {
	bubble(t, "for a moment", func(t *testing.T, f *fixture) {
		tries := 0
		f.store.writeErr = func() error {
			if tries++; tries < 4 {
				return errOut
			}
			return nil
		}
		result, err := f.run(f.input(f.changed(time.Minute, 1)))
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeWritten, result.Outcome)
		require.Len(t, f.calls, 1)
	})
	bubble(t, "the commit's answer is lost", func(t *testing.T, f *fixture) {
		f.store.lostErr = func() error { return errOut }
		result, err := f.run(f.input(f.changed(time.Minute, 1)))
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeWritten, result.Outcome)
		require.Len(t, f.calls, 1)
		require.Len(t, f.store.syncs, 1)
	})
	bubble(t, "for long", func(t *testing.T, f *fixture) {
		f.store.writeErr = func() error { return errOut }
		f.health.Succeeded("other", f.server.Add(time.Second))
		in := f.input(f.changed(time.Minute, 1))
		in.LastFailure = f.server.Add(-time.Hour)
		_, err := f.run(in)
		failed := f.failure(err)
		require.Equal(t, contract.ClassTransient, failed.Class)
		require.Equal(t, "write: store: Unavailable", failed.Reason)
		require.False(t, failed.Charged, "an outage is nobody's own")
		require.WithinDuration(t, f.server.Add(f.cfg.Lease.Write), failed.At, 0)
		require.Len(t, f.calls, 1)
	})
	bubble(t, "the row is refused", func(t *testing.T, f *fixture) {
		f.store.writeErr = func() error { return &store.Error{Kind: store.ErrRefused, Reason: "OutOfRange"} }
		f.health.Succeeded("other", f.server)
		in := f.input(f.changed(time.Minute, 1))
		in.LastFailure = f.server.Add(-time.Hour)
		_, err := f.run(in)
		failed := f.failure(err)
		require.Equal(t, contract.ClassRefused, failed.Class)
		require.True(t, failed.Charged)
	})
}

func TestOverloadAndOutageAreHandedBack(t *testing.T) {
	bubble(t, "no permit", func(t *testing.T, f *fixture) {
		f.budget(0)
		begin := time.Now()
		_, err := f.run(f.input(f.changed(time.Minute, 1)))
		require.InDelta(t, 3, f.deferral(err).Seconds(), 2)
		require.Equal(t, f.cfg.Lease.PermitWait, time.Since(begin))
		require.EqualValues(t, 1, f.metrics.all()["sync.deferred reason:permit"])
		require.Empty(t, f.calls)
	})
	bubble(t, "breaker open", func(t *testing.T, f *fixture) {
		f.cfg.Lease.PermitWait = time.Second
		for i := range 10 {
			f.health.Failed(fmt.Sprint("account ", i%2), contract.FailedAttempt{Class: contract.ClassDenied, Reason: "401 Unauthorized"})
		}
		_, err := f.run(f.input(f.changed(time.Minute, 1)))
		f.deferral(err)
		require.ErrorContains(t, err, "401 Unauthorized for everybody")
		require.EqualValues(t, 1, f.metrics.all()["sync.deferred reason:outage"])
		require.Empty(t, f.calls)
		f.cfg.Lease.PermitWait = 10 * time.Second
		_, err = f.run(f.input(f.changed(time.Minute, 1)))
		require.NoError(t, err, "a probe")
		time.Sleep(time.Second) // the budget hears of it
		require.False(t, f.health.State().Open)
	})
	// outage makes 20 calls of four accounts that all fail, within 5 s.
	outage := func(f *fixture, parked bool, e *upstream.Error) {
		f.fetch = func(context.Context, string) (upstream.Response, error) { return upstream.Response{}, e }
		for i := range 20 {
			in := f.input(f.changed(time.Minute, 1))
			in.Account, in.Parked, in.LastFailure = fmt.Sprint("secret-account-", i%4), parked, f.server
			_, err := f.run(in)
			if f.health.State().Open {
				return
			}
			require.False(f, f.failure(err).Charged)
			time.Sleep(250 * time.Millisecond)
		}
		require.Len(f, f.calls, 20)
	}
	bubble(t, "parked accounts do not open the breaker", func(t *testing.T, f *fixture) {
		outage(f, true, &upstream.Error{Class: contract.ClassTransient, Reason: "500"})
		require.False(t, f.health.State().Open)
	})
	bubble(t, "an outage charges nobody and opens the breaker", func(t *testing.T, f *fixture) {
		outage(f, false, &upstream.Error{Class: contract.ClassThrottled, Status: http.StatusServiceUnavailable, Reason: "503"})
		require.True(t, f.health.State().Open)
	})
	bubble(t, "who demands fewer calls is not out", func(t *testing.T, f *fixture) {
		outage(f, false, &upstream.Error{Class: contract.ClassThrottled, Status: http.StatusTooManyRequests, Reason: "429"})
		require.False(t, f.health.State().Open)
	})
}

func TestFailures(t *testing.T) {
	bubble(t, "an error that is not upstream's", func(t *testing.T, f *fixture) {
		f.fetch = func(context.Context, string) (upstream.Response, error) {
			return upstream.Response{}, errors.New("secret-account: broken pipe")
		}
		_, err := f.run(f.input(f.changed(time.Minute, 1)))
		failed := f.failure(err)
		require.Equal(t, contract.ClassTransient, failed.Class)
		require.Equal(t, "call failed", failed.Reason)
	})
	bubble(t, "charged only once others have succeeded since", func(t *testing.T, f *fixture) {
		f.fetch = func(context.Context, string) (upstream.Response, error) {
			return upstream.Response{}, &upstream.Error{Class: contract.ClassTransient, Reason: "500"}
		}
		in := f.input(f.changed(time.Minute, 1))
		_, err := f.run(in)
		first := f.failure(err)
		require.False(t, first.Charged)
		in.LastFailure = first.At
		_, err = f.run(in)
		require.False(t, f.failure(err).Charged)
		f.health.Succeeded("other", first.At.Add(time.Second))
		_, err = f.run(in)
		require.True(t, f.failure(err).Charged)
	})
	bubble(t, "parked accounts whose rows are refused do not open the breaker", func(t *testing.T, f *fixture) {
		f.store.writeErr = func() error { return &store.Error{Op: "write row", Kind: store.ErrRefused, Reason: "OutOfRange"} }
		for i := range 40 {
			time.Sleep(10 * time.Second) // the least that parked accounts back off
			in := f.input(f.changed(time.Minute, 1))
			in.Account, in.Parked = fmt.Sprint("secret-account-", i%2), true
			_, err := f.run(in)
			f.failure(err)
		}
		require.False(t, f.health.State().Open)
	})
	bubble(t, "a panic is charged to an account that panics while others do not", func(t *testing.T, f *fixture) {
		f.fetch = func(context.Context, string) (upstream.Response, error) { panic("secret-account, and its payload") }
		in := f.input(f.changed(time.Minute, 1))
		_, err := f.run(in)
		first := f.failure(err)
		require.Equal(t, contract.FailedAttempt{Class: contract.ClassTransient, Reason: "panic in Sync", At: first.At}, first)
		in.LastFailure = first.At
		_, err = f.run(in)
		require.False(t, f.failure(err).Charged, "a faulty build panics for everybody")
		f.health.Succeeded("other", first.At.Add(time.Second))
		_, err = f.run(in)
		require.True(t, f.failure(err).Charged)
	})
	bubble(t, "throttled lowers the budget", func(t *testing.T, f *fixture) {
		f.fetch = func(context.Context, string) (upstream.Response, error) {
			return upstream.Response{}, &upstream.Error{Class: contract.ClassThrottled, Reason: "429", Status: 429, RetryAfter: 7 * time.Second}
		}
		_, err := f.run(f.input(f.changed(time.Minute, 1)))
		failed := f.failure(err)
		require.Equal(t, contract.ClassThrottled, failed.Class)
		require.EqualValues(t, 7*time.Second, failed.RetryAfter)
		require.EqualValues(t, 1, f.metrics.all()["upstream.throttled"])
		begin := time.Now()
		_, err = f.run(f.input(f.changed(time.Minute, 1)))
		f.failure(err)
		require.InDelta(t, 7, f.calls[1].Sub(begin).Seconds(), 0.5)
	})
}

// A slot of the budget is taken until the request is on the wire, and no longer.
func TestSlotIsTakenUntilTheRequestIsSent(t *testing.T) {
	bubble(t, "slow dial", func(t *testing.T, f *fixture) {
		f.budget(1)
		var sent time.Time
		f.fetch = func(ctx context.Context, _ string) (upstream.Response, error) {
			time.Sleep(1500 * time.Millisecond) // dialling
			f.mu.Lock()
			if sent.IsZero() {
				sent = time.Now()
			}
			f.mu.Unlock()
			httptrace.ContextClientTrace(ctx).WroteRequest(httptrace.WroteRequestInfo{})
			time.Sleep(1500 * time.Millisecond) // waiting for the answer
			return upstream.Response{Status: 200, Body: []byte(`{}`)}, nil
		}
		done := make(chan error, 1)
		go func() {
			_, err := f.run(f.input(f.changed(time.Minute, 1)))
			done <- err
		}()
		time.Sleep(time.Millisecond)
		in := f.input(f.changed(time.Minute, 1))
		in.Account = "b"
		_, err := f.run(in)
		require.NoError(t, err)
		require.NoError(t, <-done)
		gap := f.calls[1].Sub(sent)
		require.GreaterOrEqual(t, gap, time.Second)
		require.Less(t, gap, 1500*time.Millisecond)
	})
}

// A Fetcher may never say that its request is sent, or panic: the slot is free again
// when it returns.
func TestSlotIsFreeWhenTheCallIsOver(t *testing.T) {
	for name, end := range map[string]func() (upstream.Response, error){
		"answer": func() (upstream.Response, error) { return upstream.Response{Status: 200, Body: []byte(`{}`)}, nil },
		"panic":  func() (upstream.Response, error) { panic("nil map") },
	} {
		bubble(t, name, func(t *testing.T, f *fixture) {
			f.budget(1)
			f.fetch = func(context.Context, string) (upstream.Response, error) { return end() }
			for i := range 3 {
				in := f.input(f.changed(time.Minute, 1))
				in.Account = fmt.Sprint(i)
				_, _ = f.run(in)
			}
			require.Len(t, f.calls, 3)
			require.Less(t, f.calls[2].Sub(f.calls[0]), 3*time.Second)
		})
	}
}

func TestHeartbeatsAllTheTime(t *testing.T) {
	bubble(t, "one that is not answered holds up the result for a moment only", func(t *testing.T, f *fixture) {
		f.mute = true
		begin := time.Now()
		_, err := f.run(f.input(f.changed(time.Minute, 1)))
		require.NoError(t, err)
		require.Equal(t, 200*time.Millisecond, time.Since(begin))
	})
	bubble(t, "while waiting and calling", func(t *testing.T, f *fixture) {
		f.fetch = func(context.Context, string) (upstream.Response, error) {
			time.Sleep(10 * time.Second)
			return upstream.Response{Status: 200, Body: []byte(`{}`)}, nil
		}
		_, err := f.run(f.input(f.changed(time.Minute, 1)))
		require.NoError(t, err)
		require.InDelta(t, 11, f.beats, 1, "one at once, then one a second")
	})
}

func TestShutdown(t *testing.T) {
	bubble(t, "while waiting for a permit: handed back at once", func(t *testing.T, f *fixture) {
		f.budget(0)
		time.AfterFunc(2*time.Second, func() { close(f.stop) })
		begin := time.Now()
		_, err := f.run(f.input(f.changed(time.Minute, 1)))
		require.Less(t, f.deferral(err), time.Second+1)
		require.Equal(t, 2*time.Second, time.Since(begin))
		require.EqualValues(t, 1, f.metrics.all()["sync.deferred reason:shutdown"])
	})
	bubble(t, "during the call: it is finished and written", func(t *testing.T, f *fixture) {
		f.fetch = func(context.Context, string) (upstream.Response, error) {
			close(f.stop)
			time.Sleep(time.Second)
			return upstream.Response{Status: 200, Body: []byte(`{}`)}, nil
		}
		result, err := f.run(f.input(f.changed(time.Minute, 1)))
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeWritten, result.Outcome)
	})
	bubble(t, "the stop timeout ends the call: handed back, and nobody's failure", func(t *testing.T, f *fixture) {
		f.fetch = func(ctx context.Context, _ string) (upstream.Response, error) {
			close(f.stop)
			time.AfterFunc(time.Second, f.cancel)
			<-ctx.Done()
			return upstream.Response{}, ctx.Err()
		}
		_, err := f.run(f.input(f.changed(time.Minute, 1)))
		f.deferral(err)
		require.Zero(t, f.metrics.all()["sync.outcomes"])
	})
	bubble(t, "the stop timeout ends during the write: it is finished", func(t *testing.T, f *fixture) {
		f.store.writeErr = func() error {
			if f.cancel(); len(f.store.syncs) == 0 && time.Since(f.calls[0]) < time.Second {
				return errOut
			}
			return nil
		}
		_, err := f.run(f.input(f.changed(time.Minute, 1)))
		require.NoError(t, err)
		require.Len(t, f.store.syncs, 1)
	})
	bubble(t, "Temporal cancels", func(t *testing.T, f *fixture) {
		f.budget(0)
		time.AfterFunc(time.Second, func() { f.cancel() })
		_, err := f.run(f.input(f.changed(time.Minute, 1)))
		require.ErrorContains(t, err, context.Canceled.Error())
		require.Empty(t, f.metrics.all()["sync.deferred"])
	})
}
