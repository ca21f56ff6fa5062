package bridgetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// TestPartitionsGrowWhileChangesWait adds partitions while the changes of some
// accounts wait in their runs, and changes the accounts again: some of them in
// another partition now, and some of these with another bridge. One run and
// one call cover both changes of an account, and all partitions are committed.
func TestPartitionsGrowWhileChangesWait(t *testing.T) {
	t.Parallel()
	const (
		accounts   = 20
		partitions = 4
		// New partitions are found within 15 s; the second changes must be in
		// their runs before these are due.
		delay = 45 * time.Second
	)
	ctx := t.Context()
	p := preparePipeline(t, "growth", 1, "SETTLE_DELAY="+delay.String())
	p.worker, p.bridge = p.start("worker"), p.start("bridge")
	other := p.start("bridge")
	began := time.Now()
	for i := range accounts {
		p.change(fmt.Sprint("account-", i))
	}
	until(t, "all wait in their runs", func() bool {
		return p.statusOf(p.bridge).WatchedRuns+p.statusOf(other).WatchedRuns == accounts
	})

	_, err := kadm.NewClient(world.kafka).CreatePartitions(ctx, partitions-1, p.Topic)
	must(t, err)
	until(t, "both bridges have some of the partitions", func() bool {
		one, two := len(p.statusOf(p.bridge).Partitions), len(p.statusOf(other).Partitions)
		return one > 0 && two > 0 && one+two == partitions
	})
	// A producer that knows no other number of partitions.
	producer, err := kgo.NewClient(kgo.SeedBrokers(world.Kafka.Brokers...))
	must(t, err)
	defer producer.Close()
	moved := 0
	for i := range accounts {
		account := fmt.Sprint("account-", i)
		p.upstream.Change(account)
		record, err := producer.ProduceSync(ctx, &kgo.Record{Topic: p.Topic, Key: []byte(account)}).First()
		must(t, err)
		if record.Partition > 0 {
			moved++
		}
	}
	took := time.Since(began)
	if took > delay-10*time.Second {
		t.Fatalf("the second changes were made %s after the first, too late to share their calls", took)
	}
	if moved < accounts/4 {
		t.Fatalf("only %d of %d accounts have moved to another partition", moved, accounts)
	}

	p.drained()
	lags, err := p.Lags(ctx)
	must(t, err)
	used := 0
	for _, lag := range lags {
		if lag.Committed != lag.End {
			t.Errorf("partition %d: committed %d, want %d", lag.Partition, lag.Committed, lag.End)
		}
		if lag.End > 0 {
			used++
		}
	}
	if len(lags) != partitions || used != partitions {
		t.Errorf("%d partitions, %d of them with records, want %d", len(lags), used, partitions)
	}
	for i := range accounts {
		account := fmt.Sprint("account-", i)
		calls := p.upstream.CallsOf(account)
		if len(calls) != 1 || calls[0].Version != 2 {
			t.Errorf("%s: calls %+v, want one that reads version 2", account, calls)
		}
	}
	// The row would spare a second run its call: that there is none shows that the
	// changes were one account's wherever they came from.
	runs := int64(0)
	until(t, "every run is listed", func() bool {
		response, err := world.temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: world.Temporal.Namespace, Query: fmt.Sprintf("TaskQueue = '%s' AND WorkflowType = '%s'", p.Name, contract.AccountSync),
		})
		must(t, err)
		runs = response.GetCount()
		return runs >= accounts
	})
	if runs != accounts {
		t.Errorf("%d runs of %d accounts, want one of each", runs, accounts)
	}
	t.Logf("%d of %d accounts moved, second changes %s after the first: %d calls", moved, accounts, took.Round(time.Second), len(p.upstream.Calls()))
}
