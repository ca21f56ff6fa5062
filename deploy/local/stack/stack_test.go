package stack

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// embedded hides what the environment names, so that the embedded parts start.
func embedded(t *testing.T) {
	t.Helper()
	for _, name := range []string{"TEMPORAL_ADDRESS", "KAFKA_BROKERS", "SPANNER_EMULATOR_HOST"} {
		t.Setenv(name, "")
	}
}

func TestStackServesAllParts(t *testing.T) {
	embedded(t)
	ctx := within(t, 10*time.Minute) // the server may have to be built first
	s, err := Start(ctx, Options{LogDir: t.TempDir(), Progress: os.Stderr, Partitions: 3, Upstream: upstream.Config{Seed: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		select {
		case err := <-s.Failed():
			t.Errorf("a part failed: %v", err)
		default:
		}
	}()
	env := map[string]string{}
	for _, entry := range s.Env() {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}

	t.Run("temporal", func(t *testing.T) {
		c, err := client.DialContext(ctx, client.Options{HostPort: env["TEMPORAL_ADDRESS"], Namespace: env["TEMPORAL_NAMESPACE"], Logger: discardLogger{}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "w", TaskQueue: "q"}, "Nobody"); err != nil {
			t.Error(err)
		}
		response, err := http.Get(s.Temporal.UI)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("UI: %s", response.Status)
		}
	})

	t.Run("kafka", func(t *testing.T) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(env["KAFKA_BROKERS"], ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ConsumerGroup("g"), kgo.ConsumeTopics(env["KAFKA_TOPICS"]), kgo.DisableAutoCommit())
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		for i := range 5 {
			record := &kgo.Record{Topic: env["KAFKA_TOPICS"], Partition: int32(i % 2), Value: []byte("v")}
			if err := cl.ProduceSync(ctx, record).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		lag := func() (total int64) {
			lags, err := s.Lags(ctx, "g", env["KAFKA_TOPICS"])
			if err != nil || len(lags) != 3 {
				t.Fatalf("lags %+v, %v", lags, err)
			}
			for _, l := range lags {
				total += l.Lag
			}
			return total
		}
		if got := lag(); got != 5 {
			t.Errorf("lag %d without a commit, want 5", got)
		}
		for n := 0; n < 5; {
			n += cl.PollFetches(ctx).NumRecords()
		}
		if err := cl.CommitUncommittedOffsets(ctx); err != nil {
			t.Fatal(err)
		}
		if got := lag(); got != 0 {
			t.Errorf("lag %d after committing all", got)
		}
		if n, err := s.Records(ctx, env["KAFKA_TOPICS"]); n != 5 || err != nil {
			t.Errorf("%d records, %v", n, err)
		}
		if n, err := s.Records(ctx, env["DEAD_LETTER_TOPIC"]); n != 0 || err != nil {
			t.Errorf("%d dead letters, %v", n, err)
		}
		if err := s.CreateTopic(ctx, env["KAFKA_TOPICS"], 9, nil); err != nil {
			t.Errorf("creating a topic that exists: %v", err)
		}
	})

	t.Run("spanner", func(t *testing.T) {
		if s.Spanner.InMemory {
			t.Skip("no emulator is installed")
		}
		second, err := s.CreateDatabase(ctx, "second")
		if err != nil {
			t.Fatal(err)
		}
		for _, database := range []string{env["SPANNER_DATABASE"], second} {
			c, err := s.Spanner.Client(ctx, database)
			if err != nil {
				t.Fatal(err)
			}
			err = c.Single().Query(ctx, spanner.NewStatement("SELECT 1")).Do(func(*spanner.Row) error { return nil })
			c.Close()
			if err != nil {
				t.Errorf("%s: %v", database, err)
			}
		}
	})

	t.Run("upstream", func(t *testing.T) {
		s.Upstream.Change("a")
		response, err := http.Get(strings.ReplaceAll(env["UPSTREAM_URL"], "{account}", "a"))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK || len(s.Upstream.Calls()) != 1 {
			t.Errorf("%s, calls %+v", response.Status, s.Upstream.Calls())
		}
	})

	t.Run("a child that dies is reported", func(t *testing.T) {
		child := &Process{Name: "short", Path: "/bin/sh", Args: []string{"-c", "exit 4"}, LogFile: filepath.Join(s.LogDir, "short.log")}
		if err := s.startChild(child); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-s.Failed():
			if !strings.Contains(err.Error(), "short ended (exit code 4)") {
				t.Error(err)
			}
		case <-within(t, 10*time.Second).Done():
			t.Error("nothing was reported")
		}
	})
}

func TestStartSaysWhatDoesNotAnswer(t *testing.T) {
	embedded(t)
	t.Setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := Start(ctx, Options{LogDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "TEMPORAL_ADDRESS=127.0.0.1:1") {
		t.Errorf("error %v", err)
	}
}

func TestPortInUseIsRefused(t *testing.T) {
	embedded(t)
	listener, err := net.Listen("tcp", loopback(0))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	for want, opts := range map[string]Options{
		"port for Temporal: ":      {TemporalPort: port},
		"port for Temporal's UI: ": {UIPort: port},
		"port for Kafka: ":         {KafkaPort: port, Without: []Part{PartTemporal}},
		"port for Spanner: ":       {SpannerPort: port, Without: []Part{PartTemporal, PartKafka}},
		"upstream simulator: ":     {UpstreamPort: port, Without: []Part{PartTemporal, PartKafka, PartSpanner}},
	} {
		opts.LogDir = t.TempDir()
		s, err := Start(t.Context(), opts)
		if err == nil {
			s.Stop() //nolint:errcheck
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s%v", want, err)
		}
	}
}

func TestLockExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "lock")
	var inside, most int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			unlock, err := lock(t.Context(), path, func() {})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			inside++
			most = max(most, inside)
			mu.Unlock()
			time.Sleep(10 * time.Millisecond) // a window for others to break in
			mu.Lock()
			inside--
			mu.Unlock()
			unlock()
		})
	}
	wg.Wait()
	if most != 1 {
		t.Errorf("%d held the lock at a time", most)
	}
	unlock, err := lock(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	waited := false
	_, err = lock(ctx, path, func() { waited = true; cancel() })
	if err == nil || !waited {
		t.Errorf("lock that is held: %v, waited %t", err, waited)
	}
}

func TestDigestFollowsTheSource(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		sum, _ := digestSource(dir)
		return sum
	}
	if sum := write("main.go", "a"); sum != "" {
		t.Error("digest without go.mod")
	}
	write("go.mod", "m")
	sums := []string{write("go.sum", "s"), write("main.go", "b"), write("go.sum", "t"), write("other.go", "")}
	for i, sum := range sums {
		for _, other := range sums[:i] {
			if sum == other || sum == "" {
				t.Errorf("digests %q", sums)
			}
		}
	}
}

func TestJSONSetting(t *testing.T) {
	for setting, want := range map[string]string{"a=1": "a=1", "a=true": "a=true", "a=1.5": "a=1.5", "a=10s": `a="10s"`} {
		if got := jsonSetting(setting); got != want {
			t.Errorf("%s: %s, want %s", setting, got, want)
		}
	}
}
