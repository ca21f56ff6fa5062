package service_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/bridge/service"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// tagged remembers the tags of the gauge that names the cause.
type tagged struct {
	hooked
	mu    sync.Mutex
	cause string
}

func (m *tagged) Gauge(name string, _ float64, tags ...string) {
	if name == "bridge.oldest_uncommitted_seconds" {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.cause = strings.Join(tags, ",")
	}
}

// spoken is a log that is read while it is written.
type spoken struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *spoken) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// oldest are the steps of a test about what the oldest change waits for.
type oldest struct {
	*testing.T
	w *world
	b *member
}

// is waits until the cause is that one, in words that hold the detail.
func (o oldest) is(cause service.Cause, detail string) service.Oldest {
	o.Helper()
	var found service.Oldest
	o.w.until("the cause is "+string(cause)+": "+detail, func() bool {
		found = o.b.Status().Oldest
		return found.Cause == cause && strings.Contains(found.Detail, detail)
	})
	return found
}

// keeps holds if the cause is that one, and stays it.
func (o oldest) keeps(cause service.Cause, detail string) {
	o.Helper()
	o.is(cause, detail)
	for range 30 {
		time.Sleep(time.Second)
		found := o.b.Status().Oldest
		require.Equal(o, cause, found.Cause, found.Detail)
	}
}

// runs makes runs what set says.
func (o oldest) runs(set func(f *temporal)) {
	o.w.temporal.mu.Lock()
	defer o.w.temporal.mu.Unlock()
	set(o.w.temporal)
}

func handedBack(why string, state enumspb.PendingActivityState) *workflowpb.PendingActivityInfo {
	return &workflowpb.PendingActivityInfo{State: state, Attempt: 7, LastStartedTime: timestamppb.Now(), LastFailure: &failurepb.Failure{
		Message: why, FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
			ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: contract.ErrorDeferred},
		},
	}}
}

const (
	scheduled = enumspb.PENDING_ACTIVITY_STATE_SCHEDULED
	started   = enumspb.PENDING_ACTIVITY_STATE_STARTED
)

// TestOldestUncommittedNamesItsCause goes through what a change can wait for
// that a lane has.
func TestOldestUncommittedNamesItsCause(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log spoken
		metrics := new(tagged)
		config := w.config()
		config.Dispatch.Linger = 6 * time.Second
		b := w.start(config, metrics, slog.New(slog.NewTextHandler(&log, nil)))
		w.until("it has everything", func() bool { return b.owned() == partitions })
		o := oldest{t, w, b}
		o.runs(func(f *temporal) { f.stuck = true })
		o.is(service.CauseNone, "")

		w.temporal.set(func(string) error { return errors.New("permission denied") })
		w.produce(1)
		o.is(service.CauseSignal, "")
		found := o.is(service.CauseTemporal, "permission denied")
		require.Equal(t, "changes/0/0", found.Record)
		require.Equal(t, "account-0", found.Account)
		require.Empty(t, found.Link)
		w.temporal.set(nil)
		found = o.is(service.CauseSettling, "until ")
		require.Equal(t, "crm/account/account-0", found.WorkflowID)
		require.Equal(t, "run-", found.RunID[:4])
		require.Equal(t, "/namespaces/default/workflows/crm%2Faccount%2Faccount-0/"+found.RunID+"/history", found.Link)

		time.Sleep(40 * time.Second) // it is due, and no worker comes
		o.is(service.CauseQueue, "")
		o.runs(func(f *temporal) { f.absent = true })
		o.is(service.CauseWorkers, "task queue crm for work")
		metrics.mu.Lock()
		require.Equal(t, "cause:workers_absent", metrics.cause)
		metrics.mu.Unlock()
		// Workers that ask another queue than the one the run was started on.
		o.runs(func(f *temporal) { f.absent, f.queue = false, "formerly" })
		o.is(service.CauseWorkers, "task queue formerly for work")
		o.runs(func(f *temporal) { f.queue = "crm" })
		w.temporal.set(func(request string) error {
			if request == "describe" || request == "pollers" {
				return errors.New("namespace rate limit exceeded")
			}
			return nil
		})
		o.is(service.CauseTemporal, "rate limit")
		w.temporal.set(nil)

		activity := func(a *workflowpb.PendingActivityInfo) { o.runs(func(f *temporal) { f.activity = a }) }
		activity(handedBack("upstream is out: 503", scheduled))
		o.is(service.CauseUpstream, "503")
		activity(handedBack("no permit within PERMIT_WAIT", scheduled))
		o.is(service.CausePermits, "PERMIT_WAIT")
		activity(handedBack("row check: deadline exceeded", started))
		o.is(service.CauseUpstream, "row check")
		activity(handedBack("row was called 2s in the future: a clock has stepped back", scheduled))
		o.is(service.CauseClock, "stepped back")
		activity(handedBack("no change has settled: due in 2s", scheduled))
		o.is(service.CauseSettling, "due in 2s")
		activity(handedBack("no change has settled: due in 2s", started)) // time is over
		o.is(service.CauseCall, "")
		// Workers that died after the hand-back come first.
		activity(handedBack("no permit within PERMIT_WAIT", scheduled))
		o.runs(func(f *temporal) { f.absent = true })
		o.is(service.CauseWorkers, "")
		o.runs(func(f *temporal) { f.absent = false })

		activity(nil)
		o.runs(func(f *temporal) { f.task = 3 })
		o.is(service.CauseRun, "histories verify")
		o.runs(func(f *temporal) { f.task = 1 })
		o.is(service.CauseQueue, "")
		activity(&workflowpb.PendingActivityInfo{State: started, Attempt: 1, LastStartedTime: timestamppb.Now()})
		o.is(service.CauseCall, "")
		o.is(service.CauseRun, "has not ended")

		// Beyond its lease: once a minute, with what to look at.
		activity(nil)
		time.Sleep(15 * time.Minute)
		o.is(service.CauseRun, "workers ask for work")
		lines := strings.Count(log.String(), "uncommitted for longer than")
		require.Positive(t, lines)
		require.Less(t, lines, 25)
		require.Contains(t, log.String(), "workflow=crm/account/account-0 run=run-")
		require.Contains(t, log.String(), "link=/namespaces/default/workflows/crm%2Faccount%2Faccount-0/run-")

		// Its run has ended, and Temporal does not tell how.
		w.temporal.set(func(request string) error {
			if request == "end" {
				return errors.New("history shard is moving")
			}
			return nil
		})
		w.temporal.complete("crm/account/account-0", w.temporal.run("crm/account/account-0"))
		o.keeps(service.CauseEnd, "")
		w.temporal.set(nil)
		o.is(service.CauseNone, "")
	})
}

// TestFailuresOfOthersAreNotTheAccounts: what a run carries from those before it.
func TestFailuresOfOthersAreNotTheAccounts(t *testing.T) {
	for name, test := range map[string]struct {
		failure contract.Failure
		cause   service.Cause
	}{
		"its own":      {contract.Failure{Count: 3, Tries: 3, Class: contract.ClassTransient, Reason: "500"}, service.CauseAccount},
		"everybody's":  {contract.Failure{Count: 1, Tries: 9, Class: contract.ClassTransient, Reason: "503"}, service.CauseUpstream},
		"not told yet": {contract.Failure{Count: 1, Tries: 1, Class: contract.ClassTransient, Reason: "500"}, service.CauseAccount},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				b := w.start(w.config(), nil, nil)
				w.until("it has everything", func() bool { return b.owned() == partitions })
				o := oldest{t, w, b}
				input, err := converter.GetDefaultDataConverter().ToPayloads(contract.AccountSyncInput{Account: "account-0", Failure: &test.failure})
				require.NoError(t, err)
				o.runs(func(f *temporal) { f.begin("crm/account/account-0", input, time.Minute) })
				w.produce(1)
				o.keeps(test.cause, "next try at")
				time.Sleep(time.Minute) // and when it is due, whoever has it
				o.is(test.cause, test.failure.Reason)
				o.runs(func(f *temporal) {
					f.activity = &workflowpb.PendingActivityInfo{State: started, Attempt: 1, LastStartedTime: timestamppb.Now()}
				})
				time.Sleep(6 * time.Second)
				require.Equal(t, test.cause, b.Status().Oldest.Cause)
			})
		})
	}
}

// TestHangingTemporalIsTheCause: requests that are never refused and never
// answered.
func TestHangingTemporalIsTheCause(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.start(w.config(), nil, nil)
		w.until("it has everything", func() bool { return b.owned() == partitions })
		var hangs atomic.Bool
		hangs.Store(true)
		oldest{t, w, b}.runs(func(f *temporal) {
			f.hang = func(ctx context.Context) {
				if hangs.Load() {
					<-ctx.Done()
				}
			}
		})
		w.produce(500) // several a lane
		time.Sleep(20 * time.Second)
		oldest{t, w, b}.keeps(service.CauseTemporal, "deadline")
		hangs.Store(false)
		w.until("all is committed", func() bool { return w.committed() == 500 })
	})
}

// TestHangingLanesAreUnknown: nothing is claimed of lanes that do not answer.
func TestHangingLanesAreUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.start(w.config(), nil, nil)
		w.until("it has everything", func() bool { return b.owned() == partitions })
		hang := make(chan struct{})
		w.temporal.set(func(request string) error { hangOn(request, "signal", hang); return nil })
		w.produce(1)
		oldest{t, w, b}.is(service.CauseUnknown, "did not answer")
		w.temporal.set(nil)
		close(hang)
		oldest{t, w, b}.is(service.CauseSettling, "")
	})
}

// TestClockThatIsOffIsACause: nothing is admitted, so nothing has an age.
func TestClockThatIsOffIsACause(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.start(w.config(), nil, nil)
		w.until("it has everything", func() bool { return b.owned() == partitions })
		o := oldest{t, w, b}
		o.runs(func(f *temporal) { f.ahead = 15 * time.Second })
		time.Sleep(70 * time.Second) // clocks are compared every minute
		w.produce(1)
		o.keeps(service.CauseClock, "clock is 15s behind Temporal's")
		require.InDelta(t, 30, b.Status().Oldest.Seconds, 10, "the age of the cause")
		o.runs(func(f *temporal) { f.ahead = 0 })
		o.is(service.CauseNone, "")
		w.until("all is committed", func() bool { return w.committed() == 1 })
	})
}

// TestEventsTellThatTheClockIsBehind before it is compared again.
func TestEventsTellThatTheClockIsBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.start(w.config(), nil, nil)
		w.until("it has everything", func() bool { return b.owned() == partitions })
		w.produce(1)
		time.Sleep(5 * time.Second)
		oldest{t, w, b}.runs(func(f *temporal) { f.ahead = 15 * time.Second })
		time.Sleep(30 * time.Second) // its run has ended
		require.InDelta(t, -15, b.Status().ClockAheadSeconds, 0.1)
	})
}

// TestDeadLetterTopicThatCannotBeWrittenIsACause: a record waits there for its
// place to be done.
func TestDeadLetterTopicThatCannotBeWrittenIsACause(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log spoken
		b := w.start(w.config(), nil, slog.New(slog.NewTextHandler(&log, nil)))
		w.until("it has everything", func() bool { return b.owned() == partitions })
		o := oldest{t, w, b}
		refused := w.refuseLetters(kerr.TopicAuthorizationFailed)
		require.NoError(t, w.kafka.ProduceSync(t.Context(), &kgo.Record{Topic: "changes"}).FirstErr())
		w.produce(1) // another change is no older
		o.keeps(service.CauseLetter, "1 dead letters")
		require.Greater(t, b.Status().Oldest.Seconds, 25.0)
		time.Sleep(6 * time.Minute) // no account's lease, but an alarm all the same
		require.Contains(t, log.String(), "cause=dead_letter")
		refused.Store(false)
		o.is(service.CauseNone, "")
		w.until("all is committed", func() bool { return w.committed() == 2 })
	})
}

func TestStoppedPartitionIsACause(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		config := w.config()
		config.Kafka.Intake.BadRecord = intake.BadStop
		b := w.start(config, nil, nil)
		w.until("it has everything", func() bool { return b.owned() == partitions })
		require.NoError(t, w.kafka.ProduceSync(t.Context(), &kgo.Record{Topic: "changes"}).FirstErr())
		w.until("the cause is known", func() bool { return b.Status().Oldest.Cause == service.CausePartition })
		require.Contains(t, b.Status().Oldest.Detail, "--to-offset 1")
		time.Sleep(6 * time.Minute)
		require.Greater(t, b.Status().Oldest.Seconds, 350.0, "the age of the cause")
	})
}
