package startup

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/quiesce-io/quiesce/deploy/local/proxy"
)

// moved returns what moves the times of a clock probe's history by d: as if
// Temporal's clock were off by that, or this machine's by as much the other way.
func moved(d time.Duration) func([]byte) []byte {
	return func(encoded []byte) []byte {
		var response workflowservice.GetWorkflowExecutionHistoryResponse
		if proto.Unmarshal(encoded, &response) != nil {
			return encoded
		}
		for _, event := range response.GetHistory().GetEvents() {
			if event.GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName() == "ClockProbe" {
				event.EventTime = timestamppb.New(event.GetEventTime().AsTime().Add(d))
			}
		}
		changed, err := proto.Marshal(&response)
		if err != nil {
			return encoded
		}
		return changed
	}
}

// temporalOff returns a Temporal whose clock is off by d.
func temporalOff(t *testing.T, d time.Duration) *proxy.GRPC {
	t.Helper()
	x, err := proxy.NewGRPC(world.Temporal.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	x.Change("GetWorkflowExecutionHistory", moved(d))
	return x
}

func clocksApart(t *testing.T) []string {
	t.Helper()
	return []string{"TEMPORAL_ADDRESS=" + temporalOff(t, time.Hour).Address}
}

// produce writes one change of the account.
func produce(t *testing.T, brokers, account string) {
	t.Helper()
	kafka, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(brokers, ",")...), kgo.DefaultProduceTopic("changes"))
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Close()
	if err := kafka.ProduceSync(context.Background(), &kgo.Record{Key: []byte(account)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// TestClocksApart: the bridge admits nothing while its clock is off, says why and
// by how much, and begins by itself once it agrees.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"behind": time.Hour, "ahead": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			temporal := temporalOff(t, off)
			brokers, _ := cluster(t)
			env := append(append(usual(), onCluster(brokers)...), "TEMPORAL_ADDRESS="+temporal.Address)
			start(t, "worker", env).awaitReady()
			r := start(t, "bridge", env)
			await(t, "it has the partitions", func() bool { return len(r.status().Partitions) == 2 })
			produce(t, brokers, name)
			await(t, "it says what the change waits for", func() bool { return r.status().Oldest.Cause == "clock_off" })
			s := r.status()
			if !strings.Contains(s.Oldest.Detail, "clock is ") || !strings.Contains(s.Oldest.Detail, name) {
				t.Errorf("detail %q", s.Oldest.Detail)
			}
			if ahead := time.Duration(s.ClockAheadSeconds * float64(time.Second)); (ahead + off).Abs() > 10*time.Second {
				t.Errorf("%s ahead, want %s", ahead, -off)
			}
			if n := s.Metrics.Counts["bridge.records"]; n != 0 {
				t.Errorf("%d records were admitted", n)
			}
			if code, text := r.get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, name) {
				t.Errorf("/readyz: %d %s", code, text)
			}
			if log, _ := r.Output(); !strings.Contains(log, "clock is off") {
				t.Error("the log does not say so")
			}
			temporal.Change("GetWorkflowExecutionHistory", nil)
			r.awaitReady()
			await(t, "the change is committed", func() bool { s := r.status(); return s.Lag == 0 && s.Metrics.Counts["bridge.records"] == 1 })
		})
	}
}
