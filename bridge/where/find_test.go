package where_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/bridge/where"
)

func TestParse(t *testing.T) {
	r, err := where.Parse("orders.eu-1/3/1841")
	require.NoError(t, err)
	require.Equal(t, where.Record{Topic: "orders.eu-1", Partition: 3, Offset: 1841}, r)
	require.Equal(t, "orders.eu-1/3/1841", r.String())
	for _, wrong := range []string{"", "orders", "orders/3", "/3/1", "orders/x/1", "orders/1/-1", "orders/-1/1", "orders/1/2/3", "orders/9999999999/1"} {
		_, err := where.Parse(wrong)
		require.ErrorContains(t, err, "TOPIC/PARTITION/OFFSET", wrong)
	}
}

// TestFoundInKafkaAlone: what needs no look at Temporal.
func TestFoundInKafkaAlone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "changes", "dead"))
	require.NoError(t, err)
	defer cluster.Close()
	options := []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)}
	client, err := kgo.NewClient(append(options, kgo.TransactionalID("t"))...)
	require.NoError(t, err)
	defer client.Close()
	produce := func(records ...*kgo.Record) {
		require.NoError(t, client.BeginTransaction())
		require.NoError(t, client.ProduceSync(ctx, records...).FirstErr())
		require.NoError(t, client.EndTransaction(ctx, kgo.TryCommit))
	}
	wanted, other := []kgo.RecordHeader{{Key: "kind", Value: []byte("account")}}, []kgo.RecordHeader{{Key: "kind", Value: []byte("other")}}
	for range 3 { // offsets 0 to 2, to be removed
		require.NoError(t, client.BeginTransaction())
		require.NoError(t, client.ProduceSync(ctx, &kgo.Record{Topic: "changes", Headers: other}).FirstErr())
		require.NoError(t, client.EndTransaction(ctx, kgo.TryCommit))
	} // with their markers 0 to 5
	produce(
		&kgo.Record{Topic: "changes", Headers: other},                        // 6
		&kgo.Record{Topic: "changes", Headers: wanted},                       // 7, no key
		&kgo.Record{Topic: "changes", Headers: wanted, Key: []byte("alice")}, // 8
	) // marker 9
	produce(
		&kgo.Record{Topic: "dead", Value: []byte("somebody else's")},
		&kgo.Record{Topic: "dead", Headers: []kgo.RecordHeader{
			{Key: consumer.HeaderReason, Value: []byte("no key")}, {Key: consumer.HeaderTopic, Value: []byte("changes")},
			{Key: consumer.HeaderPartition, Value: []byte("0")}, {Key: consumer.HeaderOffset, Value: []byte("7")},
		}},
	)
	admin := kadm.NewClient(client)
	_, err = admin.DeleteRecords(ctx, kadm.Offsets{"changes": {0: {Topic: "changes", At: 2}}})
	require.NoError(t, err)
	commits := make(kadm.Offsets)
	commits.AddOffset("changes", 0, 1, -1)
	_, err = admin.CommitOffsets(ctx, "crm", commits)
	require.NoError(t, err)

	config := intake.DefaultConfig()
	config.Filter, config.DeadLetterTopic = "header:kind=account", "dead"
	in, err := intake.New(config)
	require.NoError(t, err)
	finder := where.Finder{
		Kafka: where.Kafka{Options: options, Group: "crm", DeadLetters: "dead"}, Intake: in,
		Temporal: func(context.Context) (where.Temporal, error) {
			return where.Temporal{}, errors.New("Temporal is asked")
		},
	}
	for offset, want := range map[int64]struct {
		state where.State
		why   string
	}{
		0:  {where.Committed, "retention has removed the record, after it was committed"},
		1:  {where.NeverSeen, "which was not committed"},
		3:  {where.NoRecord, "belongs to a transaction"},
		6:  {where.Filtered, "RECORD_FILTER"},
		7:  {where.DeadLettered, "no key"},
		10: {where.NeverSeen, "ends at offset 10"},
	} {
		answer, err := finder.Find(ctx, where.Record{Topic: "changes", Offset: offset})
		require.NoError(t, err, "offset %d", offset)
		require.Equal(t, want.state, answer.State, "offset %d: %s", offset, answer.Why)
		require.Contains(t, answer.Why, want.why)
		require.Equal(t, "kafka", answer.By)
		require.EqualValues(t, 1, answer.Committed)
	}
	_, err = finder.Find(ctx, where.Record{Topic: "changes", Offset: 8})
	require.ErrorContains(t, err, "Temporal is asked")
	_, err = finder.Find(ctx, where.Record{Topic: "changes", Partition: 4})
	require.ErrorContains(t, err, "has 1 partitions")
	_, err = finder.Find(ctx, where.Record{Topic: "nowhere"})
	require.ErrorContains(t, err, "topic nowhere")
}

// TestCommitThatCannotBeReadIsNotTakenForNone: a record that retention has removed
// counts as never seen only where the group is known to have no commit.
func TestCommitThatCannotBeReadIsNotTakenForNone(t *testing.T) {
	for name, fetch := range map[string]struct {
		ofGroup, ofPartition *kerr.Error
		want                 string // of the error; empty: none
	}{
		"no group":               {kerr.GroupIDNotFound, nil, ""},
		"no right":               {kerr.GroupAuthorizationFailed, nil, "group crm: grant this client DESCRIBE on the group"},
		"no coordinator":         {kerr.CoordinatorNotAvailable, nil, "group crm: try again once its coordinator answers"},
		"partition not readable": {nil, kerr.UnknownServerError, "group crm in changes/0: try again"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "changes"))
			require.NoError(t, err)
			defer cluster.Close()
			options := []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RequestRetries(1)}
			client, err := kgo.NewClient(options...)
			require.NoError(t, err)
			defer client.Close()
			for range 3 {
				require.NoError(t, client.ProduceSync(ctx, &kgo.Record{Topic: "changes"}).FirstErr())
			}
			_, err = kadm.NewClient(client).DeleteRecords(ctx, kadm.Offsets{"changes": {0: {Topic: "changes", At: 2}}})
			require.NoError(t, err)
			cluster.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				return answerFetch(req.(*kmsg.OffsetFetchRequest), cluster.TopicInfo("changes").TopicID, fetch.ofGroup, fetch.ofPartition), nil, true
			})

			finder := where.Finder{Kafka: where.Kafka{Options: options, Group: "crm"}}
			answer, err := finder.Find(ctx, where.Record{Topic: "changes"})
			if fetch.want == "" {
				require.NoError(t, err)
				require.Equal(t, where.NeverSeen, answer.State)
				require.EqualValues(t, -1, answer.Committed)
				return
			}
			require.ErrorContains(t, err, fetch.want)
		})
	}
}

// answerFetch answers with an error of the group, or of partition 0 of changes.
func answerFetch(req *kmsg.OffsetFetchRequest, changes [16]byte, ofGroup, ofPartition *kerr.Error) *kmsg.OffsetFetchResponse {
	group := kmsg.NewOffsetFetchResponseGroup()
	group.Group = req.Groups[0].Group
	if ofGroup != nil {
		group.ErrorCode = ofGroup.Code
	}
	if ofPartition != nil {
		partition := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		partition.Offset, partition.ErrorCode = -1, ofPartition.Code
		topic := kmsg.NewOffsetFetchResponseGroupTopic()
		topic.Topic, topic.TopicID, topic.Partitions = "changes", changes, append(topic.Partitions, partition)
		group.Topics = append(group.Topics, topic)
	}
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	resp.Groups = append(resp.Groups, group)
	return resp
}
