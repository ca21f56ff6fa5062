package bridgetest

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/quiesce-io/quiesce/deploy/local/check"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

const (
	hotRate   = 10_000 // changes a second of one account
	otherRate = 10     // changes a second of all others together, each of its own account
)

// TestHotAccountDisturbsNobody has one account change 10,000 times a second, in
// three alternating pairs of half a minute without and a minute with it. It is
// signalled once a second at most, nothing is lost, and the median of the ratios
// of the others' 99th percentiles of staleness is within 10%. Staleness counts from
// the change, so the settle delay is part of it: 10 s here, a third of the default.
func TestHotAccountDisturbsNobody(t *testing.T) {
	if !*long {
		t.Skip("takes five minutes, and the machine for itself; run with -long")
	}
	f := fairness{pipeline: preparePipeline(t, "fair", 4, "SETTLE_DELAY=10s")}
	f.worker, f.bridge = f.start("worker"), f.start("bridge")
	f.run("warm", 5*time.Second, false) // a new budget grants nothing at first
	var ratios []float64
	for i := range 3 {
		without := f.run(fmt.Sprint("without-", i), 30*time.Second, false)
		with := f.run(fmt.Sprint("with-", i), time.Minute, true)
		ratios = append(ratios, with.Seconds()/without.Seconds())
		t.Logf("pair %d: p99 of the others' staleness %s without, %s with: ratio %.3f", i+1,
			without.Round(time.Millisecond), with.Round(time.Millisecond), ratios[i])
	}
	slices.Sort(ratios)
	t.Logf("median ratio %.3f", ratios[1])
	if ratios[1] > 1.10 {
		t.Errorf("the median of the ratios is %.3f, more than 1.10", ratios[1])
	}
}

type fairness struct{ *pipeline }

// run makes changes of others, and of a hot account, for d, waits until all is
// committed and returns the 99th percentile of how long after its change each of
// the others was written.
func (f fairness) run(name string, d time.Duration, hot bool) (p99 time.Duration) {
	f.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(world.Kafka.Brokers...), kgo.MaxBufferedRecords(10*hotRate))
	must(f.t, err)
	defer client.Close()
	failed := make(chan error, 1)
	produce := func(key string) {
		client.Produce(f.t.Context(), &kgo.Record{Topic: f.Topic, Key: []byte(key)}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	hotAccount := name + "-hot"
	f.upstream.Change(hotAccount)
	made := map[string]time.Time{}
	changes := 0
	began := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for elapsed := time.Duration(0); elapsed < d; elapsed = time.Since(began) {
		for ; float64(len(made)) < elapsed.Seconds()*otherRate; made[fmt.Sprint(name, "-other-", len(made))] = time.Now() {
			account := fmt.Sprint(name, "-other-", len(made))
			f.upstream.Change(account)
			produce(account)
		}
		for ; hot && float64(changes) < elapsed.Seconds()*hotRate; changes++ {
			produce(hotAccount)
		}
		<-tick.C
	}
	must(f.t, client.Flush(f.t.Context()))
	select {
	case err := <-failed:
		f.t.Fatal(err)
	default:
	}
	took := time.Since(began)
	f.drained()
	if hot {
		f.signalled(hotAccount, changes, took)
	}
	return f.staleness(made)
}

// signalled counts the hot account's signals in its histories.
func (f fairness) signalled(account string, changes int, took time.Duration) {
	f.t.Helper()
	id := contract.AccountWorkflowID(f.Name, account)
	signals, runs, told := 0, 0, 0
	until(f.t, "every run of the hot account is listed", func() bool {
		signals, runs, told = 0, 0, 0
		response, err := world.temporal.ListWorkflow(f.t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: world.Temporal.Namespace, Query: fmt.Sprintf("WorkflowId = '%s'", id), PageSize: 1000,
		})
		must(f.t, err)
		for _, execution := range response.GetExecutions() {
			runs++
			history := world.temporal.GetWorkflowHistory(f.t.Context(), id, execution.GetExecution().GetRunId(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
			for history.HasNext() {
				event, err := history.Next()
				must(f.t, err)
				signal := event.GetWorkflowExecutionSignaledEventAttributes()
				if signal.GetSignalName() != contract.SignalChanges {
					continue
				}
				var payload contract.Changes
				must(f.t, world.converter.FromPayloads(signal.GetInput(), &payload))
				signals++
				told += contract.Count(payload.Ranges)
			}
		}
		return told >= changes
	})
	f.t.Logf("%d changes of one account in %s: %d signals in %d runs", changes, took.Round(100*time.Millisecond), signals, runs)
	if float64(changes) < 0.95*hotRate*took.Seconds() {
		f.t.Errorf("only %.0f changes a second", float64(changes)/took.Seconds())
	}
	if most := int(math.Ceil(took.Seconds())) + 1; signals > most {
		f.t.Errorf("%d signals in %s, more than one a second", signals, took)
	}
}

func (f fairness) staleness(made map[string]time.Time) time.Duration {
	f.t.Helper()
	spanner, err := world.Spanner.Client(f.t.Context(), f.Database)
	must(f.t, err)
	defer spanner.Close()
	syncs, err := check.ReadSyncs(f.t.Context(), spanner)
	must(f.t, err)
	var ages []time.Duration
	for _, s := range syncs {
		if at, ok := made[s.Account]; ok {
			ages = append(ages, s.SyncedAt.Sub(at))
			delete(made, s.Account)
		}
	}
	if len(made) > 0 {
		f.t.Fatalf("%d accounts were never written", len(made))
	}
	slices.Sort(ages)
	at := func(p float64) time.Duration {
		return ages[int(math.Ceil(p*float64(len(ages))))-1].Round(time.Millisecond)
	}
	f.t.Logf("staleness of %d others: p50 %s, p99 %s, at most %s", len(ages), at(0.5), at(0.99), at(1))
	return at(0.99)
}
