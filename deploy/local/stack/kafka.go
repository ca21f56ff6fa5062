package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Kafka is the cluster in use.
type Kafka struct {
	// Brokers are the bootstrap addresses.
	Brokers []string
	// Cluster is the one in this process, for injecting faults; nil where
	// KAFKA_BROKERS names another.
	Cluster *kfake.Cluster
	// Kind says in words which cluster it is.
	Kind string

	admin *kadm.Client
}

// startKafka connects to the brokers that the environment names, or starts one,
// and creates the topics.
func (s *Stack) startKafka(ctx context.Context, opts Options) error {
	k := Kafka{Kind: "KAFKA_BROKERS"}
	if brokers := os.Getenv("KAFKA_BROKERS"); brokers != "" {
		k.Brokers = strings.Split(brokers, ",")
	} else {
		port, err := choosePort(opts.KafkaPort)
		if err != nil {
			return fmt.Errorf("port for Kafka: %w", err)
		}
		k.Kind = "kfake in this process"
		k.Cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port),
			// With the default of 5 s a KIP-848 rebalance takes as long.
			kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "200"}))
		if err != nil {
			return fmt.Errorf("start kfake on port %d: %w", port, err)
		}
		k.Brokers = k.Cluster.ListenAddrs()
		s.onStop(func() error { k.Cluster.Close(); return nil })
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers...))
	if err != nil {
		return fmt.Errorf("kafka client: %w", err)
	}
	k.admin = kadm.NewClient(cl)
	s.onStop(func() error { k.admin.Close(); return nil })
	s.Kafka = k
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		return fmt.Errorf("kafka at %s: %w", strings.Join(k.Brokers, ","), err)
	}
	if err := s.CreateTopic(ctx, opts.Topic, opts.Partitions, nil); err != nil {
		return err
	}
	return s.CreateTopic(ctx, opts.DeadLetterTopic, 1, nil)
}

// CreateTopic creates a topic with the given topic configs, such as
// message.timestamp.type. One that exists is left as it is.
func (s *Stack) CreateTopic(ctx context.Context, topic string, partitions int32, configs map[string]string) error {
	pointers := make(map[string]*string, len(configs))
	for name, value := range configs {
		pointers[name] = &value
	}
	_, err := s.Kafka.admin.CreateTopic(ctx, partitions, -1, pointers, topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	return nil
}

// PartitionLag is how far a consumer group is behind on one partition.
type PartitionLag struct {
	Topic     string
	Partition int32
	// Committed is the group's committed offset, -1 if it has none; End is the
	// offset that the next record will get.
	Committed, End int64
	// Lag is how many offsets are not committed. Without a commit it counts
	// from the partition's start.
	Lag int64
}

// Lags returns the group's lag on every partition of the topic.
func (s *Stack) Lags(ctx context.Context, group, topic string) ([]PartitionLag, error) {
	starts, err := s.Kafka.admin.ListStartOffsets(ctx, topic)
	if err = errors.Join(err, starts.Error()); err != nil {
		return nil, fmt.Errorf("start offsets of %s: %w", topic, err)
	}
	ends, err := s.Kafka.admin.ListEndOffsets(ctx, topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		return nil, fmt.Errorf("end offsets of %s: %w", topic, err)
	}
	committed, err := s.Kafka.admin.FetchOffsets(ctx, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("offsets of group %s: %w", group, err)
	}
	var lags []PartitionLag
	for partition, end := range ends[topic] {
		lag := PartitionLag{Topic: topic, Partition: partition, Committed: -1, End: end.Offset}
		from := starts[topic][partition].Offset
		if c, ok := committed.Lookup(topic, partition); ok && c.Err == nil && c.At >= 0 {
			lag.Committed, from = c.At, c.At
		}
		lag.Lag = max(0, end.Offset-from)
		lags = append(lags, lag)
	}
	return lags, nil
}

// Records returns the number of records in the topic, as offsets tell it.
func (s *Stack) Records(ctx context.Context, topic string) (int64, error) {
	lags, err := s.Lags(ctx, "nobody", topic)
	if err != nil {
		return 0, err
	}
	n := int64(0)
	for _, lag := range lags {
		n += lag.Lag
	}
	return n, nil
}

// ReadAll returns the records that the topic holds now, in no order across
// partitions.
func (s *Stack) ReadAll(ctx context.Context, topic string) ([]*kgo.Record, error) {
	want, err := s.Records(ctx, topic)
	if err != nil || want == 0 {
		return nil, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka.Brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", topic, err)
	}
	defer cl.Close()
	var records []*kgo.Record
	for int64(len(records)) < want {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read %s, %d of %d records: %w", topic, len(records), want, err)
		}
		records = append(records, fetches.Records()...)
	}
	return records, nil
}
