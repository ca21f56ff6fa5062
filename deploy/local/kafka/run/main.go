// Command run keeps an Apache Kafka broker up until it is told to stop, for
// running the demo, or bridge and worker, on it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/kafka"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

func main() {
	port := flag.Int("port", 9092, "port on 127.0.0.1; 0 chooses a free one")
	dir := flag.String("dir", "", "data directory, kept; empty: a new one that is removed at the end")
	flag.Parse()
	if err := run(*port, *dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(port int, dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := stack.Root()
	if err != nil {
		return err
	}
	installed, err := kafka.Install(ctx, root)
	if err != nil {
		return err
	}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "quiesce-kafka-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	broker, err := kafka.New(ctx, kafka.Options{Installation: installed, Dir: dir, Port: port})
	if err != nil {
		return err
	}
	if err := broker.Start(ctx); err != nil {
		return err
	}
	fmt.Printf("KAFKA_BROKERS=%s\n", broker.Addr(kafka.Plain))
	select {
	case <-ctx.Done():
	case <-broker.Done():
		return fmt.Errorf("the broker ended by itself; data and log: %s", dir)
	}
	bounded, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return broker.Terminate(bounded)
}
