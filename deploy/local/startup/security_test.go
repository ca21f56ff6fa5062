package startup

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quiesce-io/quiesce/deploy/local/proxy"
)

// cluster starts a Kafka of the test's own, with the topics "changes" and
// "letters".
func cluster(t *testing.T, options ...kfake.Opt) (brokers string, c *kfake.Cluster) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(2, "changes"), kfake.SeedTopics(1, "letters"),
		kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "200"})}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return strings.Join(c.ListenAddrs(), ","), c
}

// onCluster are the settings that lead a bridge there.
func onCluster(brokers string) []string {
	return []string{"KAFKA_BROKERS=" + brokers, "KAFKA_TOPICS=changes", "DEAD_LETTER_TOPIC=letters"}
}

// TestKafkaPermissions: each user lacks one.
func TestKafkaPermissions(t *testing.T) {
	t.Parallel()
	allow := func(resource kmsg.ACLResourceType, name string, operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true}
	}
	read := allow(kmsg.ACLResourceTypeTopic, "changes", kmsg.ACLOperationRead)
	write := allow(kmsg.ACLResourceTypeTopic, "letters", kmsg.ACLOperationWrite)
	join := allow(kmsg.ACLResourceTypeGroup, "permitted", kmsg.ACLOperationRead)
	brokers, _ := cluster(t, kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.User("PLAIN", "everything", "hush", read, write, join),
		kfake.User("PLAIN", "nothing", "hush"),
		kfake.User("PLAIN", "no-read", "hush", allow(kmsg.ACLResourceTypeTopic, "changes", kmsg.ACLOperationDescribe), write, join),
		kfake.User("PLAIN", "no-letters", "hush", read, allow(kmsg.ACLResourceTypeTopic, "letters", kmsg.ACLOperationDescribe), join),
		kfake.User("PLAIN", "no-group", "hush", read, write))
	// It closes the connection of whoever has a wrong password; Apache Kafka says so.
	denying, c := cluster(t, kfake.EnableSASL(), kfake.User("PLAIN", "everything", "hush"))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
	as := func(user, password string) []string {
		return append(onCluster(brokers), "KAFKA_GROUP=permitted", "KAFKA_SASL_MECHANISM=PLAIN", "KAFKA_SASL_USERNAME="+user, "KAFKA_SASL_PASSWORD="+password)
	}
	for _, f := range []fault{
		{name: "nothing", env: as("nothing", "hush"), says: []string{"KAFKA_TOPICS=changes", "KAFKA_BROKERS=" + brokers, "KAFKA_SASL_USERNAME=nothing", "grant READ"}},
		{name: "no reading", env: as("no-read", "hush"), says: []string{`KAFKA_TOPICS: topic "changes"`, "KAFKA_SASL_USERNAME=no-read", "may not READ it: grant that"}},
		{name: "no dead letters", env: as("no-letters", "hush"), says: []string{`DEAD_LETTER_TOPIC: topic "letters"`, "KAFKA_SASL_USERNAME=no-letters", "may not WRITE it: grant that"}},
		{name: "no group", env: as("no-group", "hush"), says: []string{"KAFKA_GROUP=permitted", "not allowed"}},
		{name: "a wrong password", env: strings.Fields(strings.ReplaceAll(strings.Join(as("everything", "wrong-one"), " "), brokers, denying)),
			says: []string{"KAFKA_SASL_MECHANISM=PLAIN", "KAFKA_BROKERS=" + denying, "refuses the credentials"}},
	} {
		f.binary, f.code = "bridge", 1
		t.Run(f.name, f.check)
	}
	t.Run("everything", func(t *testing.T) {
		t.Parallel()
		r := start(t, "bridge", append(usual(), as("everything", "hush")...)).awaitReady()
		await(t, "partitions", func() bool { return len(r.status().Partitions) == 2 })
	})
}

// refusing returns a proxy in front of target that refuses some methods.
func refusing(t *testing.T, target string, code codes.Code, refused func(method string) bool) *proxy.GRPC {
	t.Helper()
	x, err := proxy.NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	x.Refuse(func(method string) error {
		if refused(method) {
			return status.Error(code, "by order of the test")
		}
		return nil
	})
	return x
}

func everything(string) bool { return true }

// TestRefused: servers that answer, and refuse.
func TestRefused(t *testing.T) {
	t.Parallel()
	var faults []fault
	for _, code := range []codes.Code{codes.PermissionDenied, codes.Unauthenticated} {
		temporal := refusing(t, world.Temporal.Address, code, everything)
		for _, binary := range []string{"bridge", "worker"} {
			faults = append(faults, fault{
				name: binary + "/Temporal refuses/" + code.String(), binary: binary, env: []string{"TEMPORAL_ADDRESS=" + temporal.Address}, code: 1,
				says: []string{"TEMPORAL_ADDRESS=" + temporal.Address, "TEMPORAL_NAMESPACE=" + world.Temporal.Namespace, "TEMPORAL_API_KEY", "by order of the test"},
			})
		}
		spanner := refusing(t, world.Spanner.EmulatorHost, code, everything)
		for _, args := range [][]string{{"run"}, {"migrate"}, {"audit", "Alice"}} {
			faults = append(faults, fault{
				name: "worker " + args[0] + "/Spanner refuses/" + code.String(), binary: "worker", args: args, env: []string{"SPANNER_EMULATOR_HOST=" + spanner.Address}, code: 1,
				says: []string{"SPANNER_EMULATOR_HOST=" + spanner.Address, "SPANNER_DATABASE=" + world.Spanner.Database, "grant roles/spanner", "by order of the test"},
			})
		}
	}
	// Whoever may look and not touch gets in, and no further.
	looking := refusing(t, world.Temporal.Address, codes.PermissionDenied, func(method string) bool {
		return !slices.Contains([]string{"GetSystemInfo", "Check", "DescribeNamespace"}, method)
	})
	faults = append(faults, fault{
		name: "bridge/Temporal refuses/all but looking", binary: "bridge", env: []string{"TEMPORAL_ADDRESS=" + looking.Address}, code: 1,
		says: []string{"TEMPORAL_ADDRESS=" + looking.Address, "TEMPORAL_NAMESPACE=" + world.Temporal.Namespace, "TEMPORAL_API_KEY", "by order of the test"},
	})
	for _, f := range faults {
		t.Run(f.name, f.check)
	}
	// A worker that is told nothing waits for the rights it lacks, and says so.
	t.Run("worker/Temporal refuses/all but looking", func(t *testing.T) {
		t.Parallel()
		r := start(t, "worker", append(usual(), "TEMPORAL_ADDRESS="+looking.Address)).awaitReady()
		awaitOut(t, r, "temporal", "TEMPORAL_ADDRESS="+looking.Address, "by order of the test")
	})
}

// TestOneInstanceIDTwice: the two cannot both stay, and the one that goes says
// which setting to change.
func TestOneInstanceIDTwice(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			brokers, _ := cluster(t)
			env := append(append(usual(), onCluster(brokers)...), "KAFKA_INSTANCE_ID=twin", "KAFKA_GROUP_PROTOCOL="+protocol)
			first := start(t, "bridge", env).awaitReady()
			await(t, "the first has the partitions", func() bool { return len(first.status().Partitions) == 2 })
			second := start(t, "bridge", env)
			await(t, "one of them ends", func() bool { return !first.Running() || !second.Running() })
			gone, stays := first, second
			if first.Running() {
				gone, stays = second, first
			}
			if code := gone.ExitCode(); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			words := lastWords(t, gone.Process, "bridge run")
			t.Logf("first %t: %s", gone == first, words)
			if !strings.Contains(words, "KAFKA_INSTANCE_ID=twin: ") || strings.Count(words, "\n") != 1 {
				t.Errorf("it says %q", words)
			}
			await(t, "the other works on", func() bool { return len(stays.status().Partitions) == 2 })
		})
	}
}
