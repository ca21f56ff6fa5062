package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// Options say how the broker is set up.
type Options struct {
	Installation Installation
	// Dir takes the data, the properties and the log. It need not exist.
	Dir string
	// Port is that of the plain listener; 0 chooses a free one.
	Port int
	// Security adds a TLS listener, which demands a client certificate, and one
	// for SASL over TLS; nil for neither.
	Security *Security
	// Heap is the JVM's limit, as in -Xmx; empty: 384m.
	Heap string
	// Properties are added to the broker's, and win.
	Properties map[string]string
}

// Security is what the secure listeners take. Files are PEM.
type Security struct {
	// KeystoreFile holds the broker's key (PKCS 8) and certificate.
	KeystoreFile string
	// CAFile holds the authority of client certificates.
	CAFile string
	// Username and Password are accepted by SASL PLAIN. Users for SCRAM are
	// created through the plain listener. OAUTHBEARER takes any token that is
	// not signed.
	Username, Password string
}

// Broker is one node. Its methods are for one goroutine.
type Broker struct {
	process   *stack.Process
	addresses map[string]string // by listener
}

// Listeners.
const (
	Plain = "PLAIN"
	TLS   = "TLS"
	SASL  = "SASL"
)

// New prepares the data directory of a broker, which takes a second; it starts
// nothing. A directory that holds data keeps it.
func New(ctx context.Context, opts Options) (*Broker, error) {
	nodes, err := NewCluster(ctx, opts, 1)
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

// NewCluster prepares n nodes of one cluster, numbered from 1, each with a
// directory of its own below opts.Dir. Each is broker and controller, so more than half of them must
// have been started before any answers. opts.Port is that of the first.
func NewCluster(ctx context.Context, opts Options, n int) ([]*Broker, error) {
	names := []string{Plain, "CONTROLLER"}
	if opts.Security != nil {
		names = append(names, TLS, SASL)
	}
	var nodes []*Broker
	var voters []string
	for i := range n {
		b := &Broker{addresses: make(map[string]string)}
		for _, name := range names {
			port := opts.Port
			if name != Plain || port == 0 || i > 0 {
				var err error
				if port, err = stack.FreePort(); err != nil {
					return nil, fmt.Errorf("kafka broker: %w", err)
				}
			}
			b.addresses[name] = fmt.Sprintf("127.0.0.1:%d", port)
		}
		nodes = append(nodes, b)
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, b.addresses["CONTROLLER"]))
	}
	for i, b := range nodes {
		properties := base(n)
		var listeners []string
		for _, name := range names {
			listeners = append(listeners, name+"://"+b.addresses[name])
		}
		properties["listeners"] = strings.Join(listeners, ",")
		properties["node.id"] = fmt.Sprint(i + 1)
		properties["controller.quorum.voters"] = strings.Join(voters, ",")
		dir := opts.Dir
		if n > 1 {
			dir = filepath.Join(dir, fmt.Sprintf("node-%d", i+1))
		}
		if err := b.prepare(ctx, opts, dir, properties); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

func (b *Broker) prepare(ctx context.Context, opts Options, dir string, properties map[string]string) error {
	properties["log.dirs"] = filepath.Join(dir, "data")
	if opts.Security != nil {
		maps.Copy(properties, opts.Security.properties())
	}
	maps.Copy(properties, opts.Properties)

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("kafka broker: %w", err)
	}
	file := filepath.Join(dir, "server.properties")
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&text, "%s=%s\n", name, properties[name])
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("kafka broker: %w", err)
	}
	format := exec.CommandContext(ctx, opts.Installation.java,
		opts.Installation.args("", "kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", clusterID, "-c", file)...)
	if output, err := format.CombinedOutput(); err != nil {
		return fmt.Errorf("format the broker's data directory: %w\n%s", err, output)
	}
	b.process = &stack.Process{
		Name: "kafka", Path: opts.Installation.java, Args: opts.Installation.args(opts.Heap, "kafka.Kafka", file),
		Dir: dir, LogFile: filepath.Join(dir, "kafka.log"),
	}
	return nil
}

// clusterID is any UUID; two clusters never meet.
const clusterID = "UXVpZXNjZVRlc3RzMDAwMQ"

func (i Installation) args(heap, class string, args ...string) []string {
	return append([]string{
		"-Xms128m", "-Xmx" + cmp.Or(heap, "384m"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-cp", i.classpath, class,
	}, args...)
}

// base returns the properties of a node, one of n, that answers quickly: what the
// broker keeps for itself is one partition on all nodes, and nobody waits for
// members that might still come.
func base(n int) map[string]string {
	replicas, inSync := strconv.Itoa(n), strconv.Itoa(n/2+1)
	return map[string]string{
		"process.roles":             "broker,controller",
		"controller.listener.names": "CONTROLLER", "inter.broker.listener.name": Plain,
		"listener.security.protocol.map": Plain + ":PLAINTEXT,CONTROLLER:PLAINTEXT," + TLS + ":SSL," + SASL + ":SASL_SSL",
		"auto.create.topics.enable":      "false",
		// A broker that was killed is not let in again before that.
		"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500",

		"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": replicas, "min.insync.replicas": inSync,
		"transaction.state.log.num.partitions": "1", "transaction.state.log.replication.factor": replicas, "transaction.state.log.min.isr": inSync,
		"share.coordinator.state.topic.num.partitions": "1", "share.coordinator.state.topic.replication.factor": replicas, "share.coordinator.state.topic.min.isr": inSync,
		"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000",
		"group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.heartbeat.interval.ms": "200",
		"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "3000",

		"log.cleaner.backoff.ms": "200", "log.cleaner.dedupe.buffer.size": "4194304", "log.cleaner.io.buffer.size": "65536",
		"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "200",
		"num.network.threads": "2", "num.io.threads": "4", "num.replica.fetchers": "1", "background.threads": "2",
	}
}

// properties of the secure listeners. A wrong password is answered after 200 ms,
// so that guessing is slow.
func (s *Security) properties() map[string]string {
	const module = "org.apache.kafka.common.security."
	sasl := "listener.name." + strings.ToLower(SASL) + "."
	return map[string]string{
		"ssl.keystore.type": "PEM", "ssl.keystore.location": s.KeystoreFile,
		"ssl.truststore.type": "PEM", "ssl.truststore.location": s.CAFile,
		"listener.name." + strings.ToLower(TLS) + ".ssl.client.auth": "required",
		"sasl.enabled.mechanisms":                                    "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		"connection.failed.authentication.delay.ms":                  "200",
		sasl + "plain.sasl.jaas.config":                              fmt.Sprintf(`%splain.PlainLoginModule required user_%s="%s";`, module, s.Username, s.Password),
		sasl + "scram-sha-256.sasl.jaas.config":                      module + "scram.ScramLoginModule required;",
		sasl + "scram-sha-512.sasl.jaas.config":                      module + "scram.ScramLoginModule required;",
		sasl + "oauthbearer.sasl.jaas.config":                        module + `oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`,
	}
}

// Addr returns host:port of a listener.
func (b *Broker) Addr(listener string) string { return b.addresses[listener] }

// Start starts the broker, with what data there is, and waits until it answers.
func (b *Broker) Start(ctx context.Context) error {
	if err := b.process.Start(); err != nil {
		return err
	}
	if err := b.answers(ctx); err != nil {
		return errors.Join(fmt.Errorf("kafka at %s: %w; its log:\n%s", b.Addr(Plain), err, b.LogTail()), b.process.Kill())
	}
	return nil
}

// answers waits for an answer of the broker; the port alone opens before it is
// registered with its controller.
func (b *Broker) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr(Plain)), kgo.RetryTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	for {
		err := client.Ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-retry.C:
		case <-b.process.Done():
			return fmt.Errorf("it ended: %w", b.process.Wait(ctx))
		case <-ctx.Done():
			return err
		}
	}
}

// LogTail returns the end of what the broker has logged since its latest start.
func (b *Broker) LogTail() string {
	output, err := b.process.Output()
	if err != nil {
		return err.Error()
	}
	return stack.Tail(output)
}

// Terminate stops the broker in order, with SIGTERM.
func (b *Broker) Terminate(ctx context.Context) error {
	err := b.process.Terminate(ctx)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 128+15 {
		return nil // how a JVM reports it
	}
	return err
}

// Kill ends the broker with SIGKILL.
func (b *Broker) Kill() error { return b.process.Kill() }

// Done is closed once the latest start has ended.
func (b *Broker) Done() <-chan struct{} { return b.process.Done() }
