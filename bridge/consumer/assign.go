package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// adjustOffsets is called with the partitions that were just assigned and the
// offsets the client would start at. It looks the commits up once more, because
// the client does not hand out their metadata, and begins the assignments. An
// error makes the client leave this generation and try again.
func (c *Consumer) adjustOffsets(ctx context.Context, assigned map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	if len(assigned) == 0 {
		return assigned, nil
	}
	names := slices.Sorted(maps.Keys(assigned))
	infos, err := c.topics(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("assign: %w", err)
	}
	if !c.meetAll(infos) {
		return nil, errors.New("assign: a topic was created anew")
	}
	commits, err := c.kadm.FetchOffsets(ctx, c.cfg.Group)
	if err != nil {
		return nil, fmt.Errorf("assign: committed offsets of %s: %w", c.cfg.Group, err)
	}
	var starts, first, refused []ledger.Start
	for _, name := range names {
		info, found := infos[name]
		if !found {
			return nil, fmt.Errorf("assign: topic %s is gone", name)
		}
		if err := failedFetch(commits[name]); err != nil {
			return nil, fmt.Errorf("assign: %w", err)
		}
		history := readCommits(commits[name], info)
		for p := range assigned[name] {
			if history.recreated[p] && c.cfg.Recreated == RecreatedStop {
				refused = append(refused, ledger.Start{
					Source: contract.Source{TopicID: info.id, Topic: name, Partition: p},
					Next:   contract.Position{Epoch: -1, Offset: commits[name][p].At},
				})
				continue
			}
			start := history.start(contract.Source{TopicID: info.id, Topic: name, Partition: p})
			if !start.Committed {
				first = append(first, start)
				continue
			}
			if history.moved[p] {
				c.log.Warn("the group's offset was set by hand, or by another program; changes that the rows already cover are not read from upstream again, use bridge replay for that",
					"topic", name, "partition", p, "offset", start.Next.Offset)
			}
			starts = append(starts, start)
		}
	}
	if first, err = c.resolve(ctx, first, commits, infos); err != nil {
		return nil, fmt.Errorf("assign: %w", err)
	}
	starts = append(starts, first...)

	c.mu.Lock()
	defer c.mu.Unlock()
	offsets := make(map[string]map[int32]kgo.Offset)
	for _, s := range append(starts, refused...) {
		c.begin(s)
		if offsets[s.Source.Topic] == nil {
			offsets[s.Source.Topic] = make(map[int32]kgo.Offset)
		}
		offsets[s.Source.Topic][s.Source.Partition] = kgo.NewOffset().At(s.Next.Offset).WithEpoch(s.Next.Epoch)
	}
	for _, s := range refused {
		part := c.partitions[partitionKey{s.Source.Topic, s.Source.Partition}]
		part.assignment.Drop() // it must not commit over the word that was left
		c.stopPartition(part, fmt.Sprintf("topic %s was deleted and created again (now ID %s) and KAFKA_TOPIC_RECREATED=stop", s.Source.Topic, s.Source.TopicID), "--to-earliest")
	}
	return offsets, nil
}

// begin replaces what an attempt before may have left, since an assignment
// whose start failed is started anew. The caller holds mu.
func (c *Consumer) begin(s ledger.Start) {
	key := partitionKey{s.Source.Topic, s.Source.Partition}
	if old := c.partitions[key]; old != nil {
		old.assignment.Drop()
	}
	a := c.deps.Ledger.Assign(s)
	c.partitions[key] = &partition{key: key, assignment: a, gate: c.deps.Buffer.Gate(a), end: -1, first: -1}
	c.log.Info("partition assigned", "topic", key.topic, "partition", key.partition,
		"offset", s.Next.Offset, "completed_runs", len(s.Metadata.Runs))
}

// commitHistory is what a group's commits say about one topic.
type commitHistory struct {
	commits   kadmCommits
	metadata  map[int32]ledger.Metadata // of commits that are ours and this topic's
	moved     map[int32]bool            // not where we left it, by somebody's will
	recreated map[int32]bool            // commits for a topic of the same name that is gone
}

type kadmCommits = map[int32]kadm.OffsetResponse

// failedFetch returns an error if a commit could not be read: that is not the
// same as none. All of the topic's are needed, see firstPartitions.
func failedFetch(commits kadmCommits) error {
	for p, commit := range commits {
		if commit.Err != nil {
			return fmt.Errorf("committed offset of %s/%d: %w", commit.Topic, p, commit.Err)
		}
	}
	return nil
}

func readCommits(commits kadmCommits, info topicInfo) commitHistory {
	h := commitHistory{
		commits:  commits,
		metadata: make(map[int32]ledger.Metadata), moved: make(map[int32]bool), recreated: make(map[int32]bool),
	}
	for p, commit := range commits {
		m, err := ledger.Decode(commit.Metadata)
		switch {
		case err != nil:
			// Kafka's own tool to set offsets leaves no metadata.
			h.moved[p] = commit.Metadata == ""
		case m.TopicID != info.id:
			h.recreated[p] = true
		case m.Watermark != commit.At:
			// The runs hang on the watermark they were written for.
			h.moved[p] = true
			h.metadata[p] = ledger.Metadata{TopicID: m.TopicID, Watermark: commit.At, Partitions: m.Partitions}
		default:
			h.metadata[p] = m
		}
	}
	return h
}

// start returns where s starts if it has a commit.
func (h commitHistory) start(s contract.Source) ledger.Start {
	commit, found := h.commits[s.Partition]
	if !found || commit.At < 0 || h.recreated[s.Partition] {
		return ledger.Start{Source: s}
	}
	m := h.metadata[s.Partition]
	return ledger.Start{
		Source:            s,
		Next:              contract.Position{Epoch: commit.LeaderEpoch, Offset: commit.At},
		Metadata:          m,
		Committed:         true,
		CommittedMetadata: commit.Metadata,
	}
}

// firstPartitions returns how many partitions the topic had when the group
// started on it. A partition beyond that appeared later and has nothing that
// the group decided to skip, so it starts at its beginning; so does every
// partition of a topic that was created anew, or whose commits do not say.
func (h commitHistory) firstPartitions(now int32) int32 {
	if len(h.commits) == 0 {
		return now
	}
	known := int32(0)
	for _, m := range h.metadata {
		known = max(known, m.Partitions)
	}
	return known
}

// resolve gives partitions without a commit a concrete offset and commits it
// before anything is read. Otherwise "latest" would be resolved again after a
// crash, past changes that were fetched and not yet durable.
func (c *Consumer) resolve(ctx context.Context, starts []ledger.Start, commits kadm.OffsetResponses, infos map[string]topicInfo) ([]ledger.Start, error) {
	if len(starts) == 0 {
		return nil, nil
	}
	var names []string
	for _, s := range starts {
		names = append(names, s.Source.Topic)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	earliest, err := c.kadm.ListStartOffsets(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("start offsets of %s: %w", strings.Join(names, ","), err)
	}
	// The last stable offset: a transaction that is open now is not over, so
	// its records are not behind us.
	latest, err := c.kadm.ListCommittedOffsets(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("end offsets of %s: %w", strings.Join(names, ","), err)
	}
	wanted := make(map[partitionKey]ledger.Commit)
	for i := range starts {
		s := &starts[i]
		name, p := s.Source.Topic, s.Source.Partition
		info := infos[name]
		initial := readCommits(commits[name], info).firstPartitions(info.partitions)
		listed, where := earliest, StartEarliest
		if p < initial && c.cfg.Start == StartLatest {
			listed, where = latest, StartLatest
		}
		o, found := listed.Lookup(name, p)
		if !found || o.Err != nil {
			return nil, fmt.Errorf("%s offset of %s: found %t: %w", where, s.Source, found, o.Err)
		}
		s.Next = contract.Position{Epoch: -1, Offset: o.Offset}
		s.Metadata = ledger.Metadata{TopicID: info.id, Watermark: o.Offset, Partitions: initial}
		s.Committed, s.CommittedMetadata = true, s.Metadata.Encode()
		wanted[partitionKey{name, p}] = ledger.Commit{Next: s.Next, Metadata: s.CommittedMetadata}
		// As of a topic that was created anew while no bridge ran: brokers delete
		// the commits with the old one.
		if begin, found := earliest.Lookup(name, p); found && begin.Err == nil && begin.Offset < o.Offset {
			c.log.Warn("no commit yet: starting at the end, as KAFKA_START=latest says, and not reading the records before it; if they are wanted, stop all bridges of the group, run the command and start them again; with KAFKA_START=earliest a group leaves none out",
				"topic", name, "partition", p, "offset", o.Offset, "records", o.Offset-begin.Offset, "command", c.resetCommand(partitionKey{name, p}, "--to-earliest"))
			continue
		}
		c.log.Info("no commit yet: starting", "topic", name, "partition", p, "at", where, "offset", o.Offset)
	}
	failed := c.send(ctx, wanted)
	for key, err := range failed {
		return nil, fmt.Errorf("commit %s@%d: %w", key, wanted[key].Next.Offset, err)
	}
	return starts, nil
}

func (c *Consumer) onAssigned(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
	if len(assigned) > 0 {
		c.deps.Metrics.Count("bridge.rebalances", 1, "kind:assigned")
	}
}

// onRevoked commits what is done and ends the assignments. It does not wait for
// what is under way: the next owner skips what has been done, and does the rest.
func (c *Consumer) onRevoked(ctx context.Context, _ *kgo.Client, revoked map[string][]int32) {
	if len(revoked) == 0 {
		return
	}
	c.deps.Metrics.Count("bridge.rebalances", 1, "kind:revoked")
	var assignments []*ledger.Assignment
	c.mu.Lock()
	for topic, ps := range revoked {
		for _, p := range ps {
			if part := c.partitions[partitionKey{topic, p}]; part != nil {
				assignments = append(assignments, part.assignment)
			}
		}
	}
	c.mu.Unlock()
	// Shutdown cancels the client's context; this commit is still wanted.
	c.commit(context.WithoutCancel(ctx), assignments)
	c.end(revoked, "revoked")
}

// onLost ends assignments that the group has given away already: a commit now
// could take back what the next owner has committed.
func (c *Consumer) onLost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	if len(lost) == 0 {
		return
	}
	c.deps.Metrics.Count("bridge.rebalances", 1, "kind:lost")
	c.end(lost, "lost")
}

func (c *Consumer) end(ended map[string][]int32, how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for topic, ps := range ended {
		for _, p := range ps {
			key := partitionKey{topic, p}
			if part := c.partitions[key]; part != nil {
				part.assignment.Drop()
				delete(c.partitions, key)
				c.log.Info("partition "+how, "topic", topic, "partition", p)
			}
		}
	}
	// The client's pauses outlive an assignment: one that comes back would be
	// assigned and never fetched.
	if c.client != nil {
		c.client.ResumeFetchPartitions(ended)
	}
	c.deps.Buffer.Wake()
}
