package bridgetest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/bridge/where"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// TestWhere asks what became of records in every state, first with a running
// bridge, then of Kafka and Temporal alone: these cannot know what is buffered.
func TestWhere(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, "where", "PARK_AFTER=2", "SETTLE_DELAY=3s", "KAFKA_SESSION_TIMEOUT=6s")
	p.upstream.Inject("parked", upstream.Fault{Status: 400})
	next := int64(0)
	produce := func(key string) (record string) {
		t.Helper()
		r := &kgo.Record{Topic: p.Topic, Value: []byte("x")}
		if key != "" {
			p.upstream.Change(key)
			r.Key = []byte(key)
		}
		must(t, world.kafka.ProduceSync(t.Context(), r).FirstErr())
		next++
		return fmt.Sprintf("%s/0/%d", p.Topic, next-1)
	}
	committed, letter, parked := produce("alice"), produce(""), produce("parked")
	// It is parked once it fails while others succeed.
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	description, err := world.temporal.DescribeWorkflowExecution(t.Context(), contract.AccountWorkflowID(p.Name, "parked"), "")
	for n := 0; description.GetWorkflowExecutionInfo().GetType().GetName() != contract.ParkedAccountSync; n++ {
		if n == 45 {
			t.Fatal("never parked: ", err)
		}
		produce(fmt.Sprint("other-", n))
		<-tick.C
		description, err = world.temporal.DescribeWorkflowExecution(t.Context(), contract.AccountWorkflowID(p.Name, "parked"), "")
	}
	p.drained()

	bridge, err := stack.BuildBinary(t.Context(), world.Root, "bridge")
	must(t, err)
	ask := func(record string, env ...string) (where.Answer, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		run := func(args ...string) string {
			command := exec.CommandContext(ctx, bridge, append([]string{"where"}, args...)...)
			command.Env = append(append(os.Environ(), p.Env()...), env...)
			var stderr strings.Builder
			command.Stderr = &stderr
			output, err := command.Output()
			if err != nil {
				t.Fatalf("bridge where %s: %v\n%s%s", record, err, output, stderr.String())
			}
			return string(output)
		}
		var answer where.Answer
		must(t, json.Unmarshal([]byte(run("--json", record)), &answer))
		return answer, run(record)
	}
	expect := func(record string, state where.State, by string, says []string, env ...string) {
		t.Helper()
		answer, text := ask(record, env...)
		t.Logf("%s", text)
		if answer.State != state || answer.By != by {
			t.Errorf("%s is %q by %s, want %q by %s", record, answer.State, answer.By, state, by)
		}
		for _, words := range says {
			if !strings.Contains(text, words) {
				t.Errorf("%s: does not say %q:\n%s", record, words, text)
			}
		}
	}
	status := "STATUS_ADDR=" + strings.TrimSuffix(strings.TrimPrefix(p.bridge.StatusURL, "http://"), "/status")
	both, kafka := "kafka and temporal", "kafka"
	waiting := produce("bob")
	until(t, "bob has been signalled", func() bool {
		answer, _ := ask(waiting, status)
		return answer.State == where.Signalled
	})
	expect(waiting, where.Signalled, "bridge", []string{`account    "bob"`, "settling", "/namespaces/default/workflows/" + p.Name + "%2Faccount%2Fbob/"}, status)
	expect(fmt.Sprintf("%s/0/%d", p.Topic, next+5), where.NeverSeen, "bridge", []string{"has not come to it"}, status)
	p.drained()

	// What is over is no more the bridge's affair.
	answers := func(env string) {
		t.Helper()
		expect(committed, where.Committed, both, []string{"signalled by", "covered by the call of", "written", "temporal workflow show", "--run-id"}, env)
		expect(letter, where.DeadLettered, kafka, []string{"dead letter " + p.DeadLetterTopic + "/0/0", "kafka-console-consumer.sh"}, env)
		expect(parked, where.Parked, both, []string{"failed tries", "worker parked show parked"}, env)
	}
	answers(status)

	// A change that waits for long, and one behind it that is covered.
	_, err = world.temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: contract.AccountWorkflowID(p.Name, "carol"), TaskQueue: p.Name, StartDelay: time.Hour,
	}, contract.AccountSync, contract.AccountSyncInput{Account: "carol"})
	must(t, err)
	waiting = produce("carol")
	covered := produce("dave")
	until(t, "dave has been covered", func() bool {
		answer, _ := ask(covered, status)
		return answer.State == where.Covered
	})
	expect(waiting, where.Signalled, "bridge", []string{`account    "carol"`, "settling"}, status)
	expect(covered, where.Covered, both, []string{"a commit waits for changes before it", "covered by the call of"}, status)

	// From here on no bridge answers.
	must(t, p.bridge.Kill())
	nobody := "STATUS_ADDR=127.0.0.1:1"
	never := produce("erin")
	answers(nobody)
	expect(waiting, where.Signalled, both, []string{`account    "carol"`, "signalled by"}, nobody)
	expect(covered, where.Covered, both, []string{"a commit waits for changes before it"}, nobody)
	expect(never, where.NeverSeen, both, []string{"no run has it"}, nobody)
	expect(fmt.Sprintf("%s/0/%d", p.Topic, next+5), where.NeverSeen, kafka, []string{"no such record"}, nobody)

	// And one that takes its time with signals.
	p.bridge = p.start("bridge", "LINGER=10m")
	status = "STATUS_ADDR=" + strings.TrimSuffix(strings.TrimPrefix(p.bridge.StatusURL, "http://"), "/status")
	until(t, "erin's change has been taken in", func() bool {
		answer, _ := ask(never, status)
		return answer.State == where.Buffered
	})
	expect(never, where.Buffered, "bridge", []string{`account    "erin"`, "its signal is about to be sent"}, status)
}
