package kafkatest

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Partitions are added while changes are in flight, so accounts move from one to
// another: each of their changes is completed, where it is.
func TestPartitionsAreAdded(t *testing.T) {
	protocols(t, func(t *testing.T, protocol string) {
		f := newFixture(t, 2)
		cfg := f.config()
		cfg.GroupProtocol, cfg.Start = protocol, consumer.StartLatest
		quick := []kgo.Opt{kgo.MetadataMinAge(200 * time.Millisecond), kgo.MetadataMaxAge(time.Second)}
		a, b := f.member(cfg, quick...), f.member(cfg, quick...)
		a.run()
		b.run()
		untilShared(f, 2, a, b)
		keyed := func(partitions int) {
			var records []*kgo.Record
			for i := range 200 {
				account := i % 40
				records = append(records, &kgo.Record{Partition: int32(account % partitions), Key: fmt.Appendf(nil, "account-%d", account)})
			}
			f.produce(records...)
		}
		keyed(2)
		f.until("in flight", func() bool { return len(a.sink.all())+len(b.sink.all()) == 200 })
		_, err := f.admin.CreatePartitions(t.Context(), 3, f.topic)
		require.NoError(t, err)
		f.until("added", func() bool {
			f.client.ForceMetadataRefresh()
			details, err := f.admin.ListTopics(t.Context(), f.topic)
			return err == nil && len(details[f.topic].Partitions) == 5
		})
		f.until("producer knows", func() bool {
			r := &kgo.Record{Topic: f.topic, Partition: 4, Key: []byte("probe")}
			if f.client.ProduceSync(t.Context(), r).FirstErr() != nil {
				return false
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.produced[4] = append(f.produced[4], r.Offset)
			return true
		})
		keyed(5)
		f.untilFlow(a, b)
		f.until("all partitions assigned", func() bool { return len(a.partitions())+len(b.partitions()) == 5 })
		submitted := map[string]int{}
		for _, c := range append(a.sink.all(), b.sink.all()...) {
			submitted[c.Account]++
		}
		for account := range 40 {
			require.GreaterOrEqual(t, submitted[fmt.Sprintf("account-%d", account)], 10)
		}
		a.stop()
		b.stop()
	})
}

// The topic is deleted and created again while its changes are in flight, with
// KAFKA_START=latest, which must not make anybody skip what the new one holds.
func TestTopicIsRecreated(t *testing.T) {
	for _, policy := range []string{consumer.RecreatedRestart, consumer.RecreatedStop} {
		t.Run(policy, func(t *testing.T) {
			protocols(t, func(t *testing.T, protocol string) {
				f := newFixture(t, 2)
				cfg := f.config()
				cfg.GroupProtocol, cfg.Recreated, cfg.Start = protocol, policy, consumer.StartLatest
				a, b := f.start(cfg), f.start(cfg)
				untilShared(f, 2, a, b)
				f.fill(2, 20)
				f.until("in flight", func() bool { return len(a.sink.all())+len(b.sink.all()) == 40 })
				f.complete(a.sink.take()[:10]...)
				f.complete(b.sink.take()[:10]...)
				for p := range int32(2) {
					f.untilCommitted(p, 10)
				}
				_, err := f.admin.DeleteTopic(t.Context(), f.topic)
				require.NoError(t, err)
				f.forget()
				f.until("created again", func() bool {
					_, err := f.admin.CreateTopic(t.Context(), 2, 1, nil, f.topic)
					return err == nil
				})
				f.client.PurgeTopicsFromClient(f.topic)
				f.renew()
				for _, m := range []*member{a, b} {
					<-m.ended
					require.ErrorContains(t, m.err, "deleted and created again")
				}
				f.fill(2, 5)

				c := f.start(cfg)
				if policy == consumer.RecreatedStop {
					f.until("stopped", func() bool { return c.Status().StoppedPartitions == 2 })
					why := c.Status().Partitions[1].Stopped
					require.Contains(t, why, "KAFKA_TOPIC_RECREATED=stop")
					c.stop()
					c = f.start(cfg) // still
					f.until("stopped", func() bool { return c.Status().StoppedPartitions == 2 })
					require.Empty(t, c.sink.all())
					stopped := c.Status().Partitions
					c.stop()
					for _, p := range stopped {
						f.resume(p.Stopped)
					}
					c = f.start(cfg)
				}
				c.untilSubmitted(10)
				f.untilFlow(c)
				require.Len(t, c.sink.all(), 10)
				for p := range int32(2) {
					f.untilCommitted(p, 5)
				}
				c.stop()
			})
		})
	}
}

// renew follows the topic to its new ID.
func (f *fixture) renew() {
	f.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(on.plain))
	require.NoError(f.t, err)
	defer cl.Close()
	f.until("the new topic is there", func() bool {
		details, err := kadm.NewClient(cl).ListTopics(f.t.Context(), f.topic)
		f.mu.Lock()
		defer f.mu.Unlock()
		if err != nil || details[f.topic].Err != nil || f.id == contract.TopicID(details[f.topic].ID) {
			return false
		}
		f.id = contract.TopicID(details[f.topic].ID)
		return true
	})
}

// resume runs the command that a stopped partition names; on kfake, which has no
// scripts, it does what that does. The group must be empty for it.
func (f *fixture) resume(stopped string) {
	f.t.Helper()
	_, command, found := strings.Cut(stopped, "run: ")
	require.True(f.t, found, stopped)
	command, _, _ = strings.Cut(command, " and start them again")
	if on.apache {
		output, err := on.installed.Run(f.t.Context(), command)
		require.NoError(f.t, err)
		require.Contains(f.t, output, f.topic)
		return
	}
	var partition int32
	_, err := fmt.Sscanf(command[strings.LastIndex(command, "--topic")+len("--topic ")+len(f.topic)+1:], "%d", &partition)
	require.NoError(f.t, err)
	cl, err := kgo.NewClient(kgo.SeedBrokers(on.plain))
	require.NoError(f.t, err)
	defer cl.Close()
	admin := kadm.NewClient(cl)
	starts, err := admin.ListStartOffsets(f.t.Context(), f.topic)
	require.NoError(f.t, err)
	o, _ := starts.Lookup(f.topic, partition)
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: f.topic, Partition: partition, At: o.Offset, LeaderEpoch: -1})
	require.NoError(f.t, admin.CommitAllOffsets(f.t.Context(), f.group, offsets))
}

// Retention has passed the committed offset of one partition: that one stops,
// the other goes on, and the command that the status names resumes it.
func TestRetentionPassesTheCommittedOffset(t *testing.T) {
	f := newFixture(t, 2)
	f.fill(2, 10)
	a := f.start(f.config())
	for _, c := range a.untilSubmitted(20) {
		if c.Position.Offset < 3 {
			f.complete(c)
		}
	}
	for p := range int32(2) {
		f.untilCommitted(p, 3)
	}
	a.stop()
	deleted := kadm.Offsets{}
	deleted.Add(kadm.Offset{Topic: f.topic, Partition: 1, At: 6})
	_, err := f.admin.DeleteRecords(t.Context(), deleted)
	require.NoError(t, err)

	b := f.start(f.config())
	f.until("stopped", func() bool { return b.Status().StoppedPartitions == 1 })
	f.until("the other goes on", func() bool {
		f.complete(b.sink.take()...)
		return f.committedAt(0) == 10
	})
	stopped := b.Status().Partitions[1].Stopped
	b.stop()
	require.EqualValues(t, 3, f.committedAt(1))
	t.Log(stopped)

	f.resume(stopped)
	f.mu.Lock()
	f.produced[1] = f.produced[1][6:] // retention has the rest
	f.mu.Unlock()
	c := f.start(f.config())
	f.untilFlow(c)
	require.Len(t, c.sink.all(), 4)
	c.stop()
}

// The committed offset lies beyond the end, as after an unclean election: no
// silent reset either.
func TestCommittedOffsetBeyondTheEnd(t *testing.T) {
	f := newFixture(t, 1)
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: f.topic, At: 50, LeaderEpoch: -1})
	require.NoError(t, f.admin.CommitAllOffsets(t.Context(), f.group, offsets))
	f.fill(1, 10)
	produced := maps.Clone(f.produced)
	f.forget() // the commit is not ours to judge
	a := f.start(f.config())
	f.until("stopped", func() bool { return a.Status().StoppedPartitions == 1 })
	stopped := a.Status().Partitions[0].Stopped
	require.Empty(t, a.sink.all())
	a.stop()
	f.resume(stopped)
	f.forget()
	f.mu.Lock()
	f.produced = produced
	f.mu.Unlock()
	b := f.start(f.config())
	f.untilFlow(b)
	require.Len(t, b.sink.all(), 10)
	b.stop()
}
