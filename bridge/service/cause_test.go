package service_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/stretchr/testify/require"
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

// TestOldestUncommittedNamesItsCause goes through what a change can wait for.
func TestOldestUncommittedNamesItsCause(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log bytes.Buffer
		metrics := new(tagged)
		b := w.start(w.config(), metrics, slog.New(slog.NewTextHandler(&log, nil)))
		w.until("it has everything", func() bool { return b.owned() == partitions })
		w.temporal.mu.Lock()
		w.temporal.stuck = true
		w.temporal.mu.Unlock()
		is := func(cause service.Cause, detail string) {
			t.Helper()
			w.until("the cause is "+string(cause), func() bool { return b.Status().Oldest.Cause == cause })
			require.Contains(t, b.Status().Oldest.Detail, detail)
		}
		is(service.CauseNone, "")

		w.temporal.set(func(string) error { return errors.New("permission denied") })
		w.produce(1)
		is(service.CauseTemporal, "permission denied")
		require.Equal(t, "changes/0/0", b.Status().Oldest.Record)
		require.Equal(t, "account-0", b.Status().Oldest.Account)
		w.temporal.set(nil)
		is(service.CauseSettling, "until ")
		require.Equal(t, "crm/account/account-0", b.Status().Oldest.WorkflowID)
		require.Equal(t, "run-", b.Status().Oldest.RunID[:4])

		time.Sleep(40 * time.Second) // it is due, and no worker comes
		is(service.CauseQueue, "")
		w.temporal.set(nil)
		w.temporal.mu.Lock()
		w.temporal.absent = true
		w.temporal.mu.Unlock()
		is(service.CauseWorkers, "task queue crm")
		metrics.mu.Lock()
		require.Equal(t, "cause:workers_absent", metrics.cause)
		metrics.mu.Unlock()

		activity := func(a *workflowpb.PendingActivityInfo) {
			w.temporal.mu.Lock()
			defer w.temporal.mu.Unlock()
			w.temporal.absent, w.temporal.activity = false, a
		}
		handedBack := func(why string) *workflowpb.PendingActivityInfo {
			return &workflowpb.PendingActivityInfo{State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, Attempt: 7, LastFailure: &failurepb.Failure{
				Message: why, FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
					ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: contract.ErrorDeferred},
				},
			}}
		}
		activity(handedBack("upstream is out: 503"))
		is(service.CauseUpstream, "503")
		activity(handedBack("no permit within PERMIT_WAIT"))
		is(service.CauseQueue, "permit")
		activity(&workflowpb.PendingActivityInfo{State: enumspb.PENDING_ACTIVITY_STATE_STARTED, Attempt: 1, LastStartedTime: timestamppb.Now()})
		is(service.CauseCall, "")
		is(service.CauseRun, "has not ended")

		// Beyond its lease: once a minute, with what to look at.
		activity(nil)
		time.Sleep(15 * time.Minute)
		is(service.CauseRun, "workers ask for work")
		lines := strings.Count(log.String(), "uncommitted for longer than")
		require.Positive(t, lines)
		require.Less(t, lines, 18)
		require.Contains(t, log.String(), "workflow=crm/account/account-0 run=run-")
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
	})
}
