package kafkatest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/quiesce-io/quiesce/deploy/local/kafka"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// backend is a cluster that tests share. They have topics and groups of their
// own, and run one after the other, since some restart the broker.
type backend struct {
	apache bool
	plain  string
	// Restart stops the broker, or kills it, and starts it on the same ports
	// with the data it had.
	restart func(ctx context.Context, kill bool) error

	cluster   *kfake.Cluster // nil on Apache Kafka
	broker    *kafka.Broker  // nil on kfake, like all below
	installed kafka.Installation
	security  security
}

var use = flag.String("kafka", "kfake", "broker to test on: kfake or apache")

// on is set by TestMain, once.
var on *backend

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "quiesce-kafkatest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	var stop func() error
	switch *use {
	case "kfake":
		on, stop, err = startKfake(dir)
	case "apache":
		on, stop, err = startApache(dir)
	default:
		err = fmt.Errorf("-kafka=%s: want kfake or apache", *use)
	}
	switch {
	case errors.Is(err, kafka.ErrUnavailable):
		fmt.Printf("SKIPPED: %v\n", err)
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func startKfake(dir string) (*backend, func() error, error) {
	port, err := stack.FreePort()
	if err != nil {
		return nil, nil, err
	}
	b := &backend{plain: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	start := func() (err error) {
		b.cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(filepath.Join(dir, "kfake")),
			kfake.BrokerConfigs(map[string]string{
				"group.consumer.heartbeat.interval.ms": "200", "group.consumer.session.timeout.ms": "3000",
				"group.min.session.timeout.ms": "1000",
			}))
		return err
	}
	b.restart = func(context.Context, bool) error { b.cluster.Close(); return start() }
	return b, func() error { b.cluster.Close(); return nil }, start()
}

func startApache(dir string) (*backend, func() error, error) {
	root, err := stack.Root()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // the first time, Maven fetches
	defer cancel()
	b := &backend{apache: true}
	if b.installed, err = kafka.Install(ctx, root); err != nil {
		return nil, nil, err
	}
	if b.security, err = newSecurity(dir); err != nil {
		return nil, nil, err
	}
	b.broker, err = kafka.New(ctx, kafka.Options{Installation: b.installed, Dir: filepath.Join(dir, "broker"), Security: b.security.broker()})
	if err != nil {
		return nil, nil, err
	}
	b.plain = b.broker.Addr(kafka.Plain)
	terminate := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return b.broker.Terminate(ctx)
	}
	b.restart = func(ctx context.Context, kill bool) error {
		stop := terminate
		if kill {
			stop = b.broker.Kill
		}
		if err := stop(); err != nil {
			return err
		}
		return b.broker.Start(ctx)
	}
	return b, terminate, b.broker.Start(ctx)
}
