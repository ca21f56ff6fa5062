package bridgetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// waited is what the history of an account's open run tells of its waiting.
type waited struct {
	due      time.Time
	backsOff bool            // after a run before it, not after its start
	by       map[string]bool // who signalled it before it was due
	task     time.Time       // when its first workflow task was scheduled; zero: not yet
}

func readWaited(t *testing.T, workflowID string) (waited, error) {
	w := waited{by: map[string]bool{}}
	history := world.temporal.GetWorkflowHistory(t.Context(), workflowID, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		if err != nil {
			return w, err
		}
		at := event.GetEventTime().AsTime()
		switch event.GetEventType() {
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
			started := event.GetWorkflowExecutionStartedEventAttributes()
			w.due = at.Add(started.GetFirstWorkflowTaskBackoff().AsDuration())
			w.backsOff = started.GetContinuedExecutionRunId() != ""
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
			if at.Before(w.due) {
				w.by[event.GetWorkflowExecutionSignaledEventAttributes().GetIdentity()] = true
			}
		case enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED:
			if w.task.IsZero() {
				w.task = at
			}
		}
	}
	return w, nil
}

// TestRestartWakesNobody kills a bridge with accounts waiting, three quarters of
// them in their start delay and the rest in the backoff of a continued run,
// before anything was committed. Its successor signals each again, and no run has
// its first workflow task before it is due. With -long there are 2,000.
func TestRestartWakesNobody(t *testing.T) {
	t.Parallel()
	accounts, delay := 100, 18*time.Second
	if *long {
		accounts, delay = 2000, 2*time.Minute
	}
	// It proves something only where all was signalled again before it was due;
	// a machine that is slow gets more time for that.
	for try := 1; !restartWakesNobody(t, accounts, delay); try++ {
		if try == 3 {
			t.Fatal("never was everything signalled by both bridges before it was due")
		}
		delay *= 3
	}
}

// restartWakesNobody reports whether both bridges have signalled every account
// before it was due.
func restartWakesNobody(t *testing.T, accounts int, delay time.Duration) bool {
	t.Helper()
	backoff := delay + 8*time.Second // it begins a little earlier
	p := preparePipeline(t, "restart", 1, "SETTLE_DELAY="+delay.String(), "KAFKA_SESSION_TIMEOUT=6s")
	key := func(i int) string { return fmt.Sprint("account-", i) }
	id := func(i int) string { return contract.AccountWorkflowID(p.Name, key(i)) }

	// Nobody works on the pipeline's own queue: the server schedules the first
	// task of a run whether there is a worker or not.
	w := worker.New(world.temporal, p.Name+"-backoff", worker.Options{})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context, in contract.AccountSyncInput) error {
		return workflow.NewContinueAsNewErrorWithOptions(ctx, workflow.ContinueAsNewErrorOptions{BackoffStartInterval: backoff}, contract.AccountSync, in)
	}, workflow.RegisterOptions{Name: contract.AccountSync})
	must(t, w.Start())
	stopWorker := sync.OnceFunc(w.Stop)
	defer stopWorker()
	each := func(from int, what func(i int) error) {
		t.Helper()
		var group errgroup.Group
		group.SetLimit(16)
		for i := from; i < accounts; i++ {
			group.Go(func() error { return what(i) })
		}
		must(t, group.Wait())
	}
	startDelay := accounts * 3 / 4
	each(startDelay, func(i int) error {
		_, err := world.temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id(i), TaskQueue: p.Name + "-backoff"},
			contract.AccountSync, contract.AccountSyncInput{Account: key(i)})
		return err
	})
	each(startDelay, func(i int) error {
		for {
			if w, err := readWaited(t, id(i)); err != nil || w.backsOff {
				return err
			}
		}
	})
	stopWorker()

	var records []*kgo.Record
	for i := range accounts {
		records = append(records, &kgo.Record{Topic: p.Topic, Key: []byte(key(i))})
	}
	p.bridge = p.start("bridge")
	must(t, world.kafka.ProduceSync(t.Context(), records...).FirstErr())
	until(t, "all are signalled", func() bool { return p.status().WatchedRuns == accounts })
	must(t, p.bridge.Kill())
	killed := time.Now()
	if lag, err := p.Lag(t.Context()); err != nil || lag != int64(accounts) {
		t.Fatalf("lag %d, %v: something was committed", lag, err)
	}
	p.bridge = p.start("bridge")
	until(t, "all are signalled again", func() bool { return p.status().WatchedRuns == accounts })
	again := time.Since(killed)

	var mu sync.Mutex
	var all []waited
	pending := map[int]bool{}
	for i := range accounts {
		pending[i] = true
	}
	untilWithin(t, backoff+90*time.Second, "all have had their first task", func() bool {
		each(0, func(i int) error {
			mu.Lock()
			wanted := pending[i]
			mu.Unlock()
			if !wanted {
				return nil
			}
			w, err := readWaited(t, id(i))
			mu.Lock()
			defer mu.Unlock()
			if err == nil && !w.task.IsZero() {
				delete(pending, i)
				all = append(all, w)
			}
			return err
		})
		return len(pending) == 0
	})
	early, twice, backedOff := 0, 0, 0
	closest := time.Hour
	for _, w := range all {
		if w.task.Before(w.due) {
			early++
		}
		if len(w.by) >= 2 {
			twice++
		}
		if w.backsOff {
			backedOff++
		}
		closest = min(closest, w.task.Sub(w.due))
	}
	t.Logf("%d accounts waiting, %d in their start delay, %d backed off; all redelivered and signalled again %s after the kill, %d of them before they were due: woken early %d of %d, the first workflow task at the earliest %s after due",
		accounts, accounts-backedOff, backedOff, again.Round(100*time.Millisecond), twice, early, accounts, closest.Round(time.Millisecond))
	if early != 0 {
		t.Errorf("%d of %d runs were woken early", early, accounts)
	}
	if backedOff != accounts-startDelay {
		t.Errorf("%d backed off, want %d", backedOff, accounts-startDelay)
	}
	return twice == accounts
}
