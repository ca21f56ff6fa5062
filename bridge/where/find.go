package where

import (
	"context"
	"fmt"
	"time"

	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Finder looks a record up in Kafka and Temporal alone.
type Finder struct {
	Kafka  Kafka
	Intake *intake.Intake
	// Temporal connects when it is needed.
	Temporal func(ctx context.Context) (Temporal, error)
}

// Find returns what is known of the record.
func (f Finder) Find(ctx context.Context, r Record) (Answer, error) {
	p, err := f.Kafka.look(ctx, r)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Record: r.String(), By: "kafka", Committed: p.committed}
	done := r.Offset < p.committed
	switch {
	case r.Offset >= p.end:
		a.State, a.Why = NeverSeen, fmt.Sprintf("the partition ends at offset %d: no such record was produced yet", p.end)
		return a, nil
	case r.Offset < p.start:
		a.State, a.Why = NeverSeen, fmt.Sprintf("the partition begins at offset %d: the topic's retention has removed the record, which was not committed", p.start)
		if done {
			a.State, a.Why = Committed, fmt.Sprintf("the partition begins at offset %d: the topic's retention has removed the record, after it was committed", p.start)
		}
		return a, nil
	case p.record == nil:
		a.State, a.Why = NoRecord, "compaction has removed it, or the offset belongs to a transaction; it counts as done"
		return a, nil
	}
	a.Events = append(a.Events, Event{At: p.record.Timestamp, What: "the record's own time"})
	reading := f.Intake.Read(p.record, time.Now())
	switch {
	case reading.Filtered:
		a.State, a.Why = Filtered, "RECORD_FILTER says that it is no change"
		return a, nil
	case reading.Bad != "":
		return f.bad(ctx, a, r, p, reading.Bad)
	}
	a.Account = reading.Account
	return f.change(ctx, a, r, p)
}

// bad is the answer for a record from which no account can be derived.
func (f Finder) bad(ctx context.Context, a Answer, r Record, p partition, why string) (Answer, error) {
	found, err := f.letter(ctx, &a, r, p)
	switch {
	case err != nil:
		return Answer{}, err
	case found:
	case r.Offset < p.committed:
		a.State, a.Why = Committed, "no account can be derived from it ("+why+"), it was skipped, or its dead letter is gone"
	default:
		a.State, a.Why = NeverSeen, "no account can be derived from it ("+why+"); it is neither committed nor in the dead-letter topic"
	}
	return a, nil
}

func (f Finder) letter(ctx context.Context, a *Answer, r Record, p partition) (bool, error) {
	letter, err := f.Kafka.deadLetter(ctx, r, p.record.Timestamp)
	if err != nil || letter == nil {
		return false, err
	}
	at := fmt.Sprintf("%s/%d/%d", letter.Topic, letter.Partition, letter.Offset)
	a.State, a.Why = DeadLettered, header(letter, consumer.HeaderReason)
	a.Events = append(a.Events, Event{At: letter.Timestamp, What: "dead letter " + at})
	a.More = append(a.More, fmt.Sprintf("kafka-console-consumer.sh --bootstrap-server ... --topic %s --partition %d --offset %d --max-messages 1 --property print.headers=true",
		letter.Topic, letter.Partition, letter.Offset))
	return true, nil
}

// change is the answer for a change of a known account.
func (f Finder) change(ctx context.Context, a Answer, r Record, p partition) (Answer, error) {
	temporal, err := f.Temporal(ctx)
	if err != nil {
		return Answer{}, err
	}
	a.By = "kafka and temporal"
	source := contract.Source{TopicID: p.topicID, Topic: r.Topic, Partition: r.Partition}
	found, err := temporal.follow(ctx, a.Account, source, contract.Position{Epoch: p.record.LeaderEpoch, Offset: r.Offset})
	if err != nil {
		return Answer{}, err
	}
	a.Events = append(a.Events, found.events...)
	for _, e := range found.events {
		a.Show(temporal.Namespace, e.WorkflowID, e.RunID)
	}
	if !found.signalled && !found.covered {
		// Temporal may have refused it.
		if letter, err := f.letter(ctx, &a, r, p); err != nil || letter {
			return a, err
		}
	}
	done := r.Offset < p.committed
	switch {
	case found.covered && done:
		a.State, a.Why = Committed, "a call has covered it, and its offset is committed"
	case found.covered:
		a.State, a.Why = Covered, "a call has covered it; a commit waits for changes before it"
	case found.parked:
		a.State, a.Why = Parked, "its account keeps failing and was set aside; it is tried again by itself"
		a.More = append(a.More, "worker parked show "+a.Account, "worker parked retry "+a.Account)
	case found.signalled && found.open:
		a.State, a.Why = Signalled, "a run has it, and no call has covered it yet"
	case done:
		a.State, a.Why = Committed, "its offset is committed; the run that had it is gone with Temporal's retention, or an earlier one covered it"
		a.More = append(a.More, "worker audit "+a.Account)
	case p.beyond(r.Offset):
		a.State, a.Why = Covered, "the commit's metadata lists it as done; a commit waits for changes before it"
	case found.signalled:
		a.State, a.Why = Signalled, "the run that had it has ended without covering it; the bridge that owns the partition signals it again"
	default:
		a.State, a.Why = NeverSeen, "no run has it, and it is not committed: no bridge has come to it, or it is in one that was not asked (STATUS_ADDR, --status)"
	}
	return a, nil
}
