package contract

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"time"
)

// TopicID is Kafka's topic ID (a UUID, KIP-516). Its text form is the one that
// Kafka's own tools print: 22 characters of URL-safe base64 without padding.
// The zero value stands for a broker that has no topic IDs (before 2.8).
type TopicID [16]byte

// IsZero reports whether there is no ID.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// String returns Kafka's text form.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (id TopicID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (id *TopicID) UnmarshalText(text []byte) error {
	raw, err := base64.RawURLEncoding.DecodeString(string(text))
	if err != nil || len(raw) != len(id) {
		return fmt.Errorf("topic ID %q: want 22 characters of URL-safe base64", text)
	}
	copy(id[:], raw)
	return nil
}

// Source is the partition a change came from. TopicID decides whether two sources
// are the same; Topic is there for people, and for brokers without topic IDs.
type Source struct {
	TopicID   TopicID `json:"topic_id"`
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
}

// Same reports whether s and t are the same partition of the same topic.
func (s Source) Same(t Source) bool { return s.Compare(t) == 0 }

// Compare orders sources by topic ID, or by name where there is none, then
// partition.
func (s Source) Compare(t Source) int {
	topic := slices.Compare(s.TopicID[:], t.TopicID[:])
	if topic == 0 && s.TopicID.IsZero() {
		topic = cmp.Compare(s.Topic, t.Topic)
	}
	return cmp.Or(topic, cmp.Compare(s.Partition, t.Partition))
}

// String returns topic/partition.
func (s Source) String() string { return fmt.Sprintf("%s/%d", s.Topic, s.Partition) }

// Position is a record's place within one Source.
type Position struct {
	Epoch  int32 `json:"epoch"` // leader epoch, -1 where the broker knows none
	Offset int64 `json:"offset"`
}

// Compare orders positions by leader epoch, then offset.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Epoch, q.Epoch), cmp.Compare(p.Offset, q.Offset))
}

// Range stands for Count changes of one account from one Source: those the
// bridge put into one signal, or several such that will be covered together
// anyway (see [Coalesce]). It is due by its oldest change and covered by its
// newest, so merging never makes a call cover something that had not settled.
//
// A range stands for every change of the account between First and Last: a
// bridge delivers those of one source in order and leaves none out. (One lost in
// a failover of Temporal and merged over is covered with its neighbours, which is
// right as long as change times follow offsets; SETTLE_CLOCK=record gives that
// up.)
type Range struct {
	Source Source    `json:"source"`
	First  Position  `json:"first"`
	Last   Position  `json:"last"`
	Count  int       `json:"count"`  // at least; redeliveries that overlap are not counted twice
	Oldest time.Time `json:"oldest"` // least change time
	Newest time.Time `json:"newest"` // greatest change time
	// Version is the greatest that the changes carried, zero for none.
	Version Version `json:"version,omitzero"`
}

// Contains reports whether a change at p in s lies within the range.
func (r Range) Contains(s Source, p Position) bool {
	return r.Source.Same(s) && r.First.Compare(p) <= 0 && p.Compare(r.Last) <= 0
}

// Settled reports whether the whole range is settled for a call at call.
func (r Range) Settled(call time.Time, settle time.Duration) bool {
	return Settled(r.Newest, call, settle)
}

// Settled is the promise in one line: a change may be taken as read by a call
// only if the call started at least the settle time after the change. Workflow,
// row check, bridge and tests all ask this function and nothing else.
func Settled(change, call time.Time, settle time.Duration) bool {
	return !change.Add(settle).After(call)
}

// Through says that every change of the account in Source at or below Position
// is covered: nothing at or below it was pending when that was written.
type Through struct {
	Source   Source   `json:"source"`
	Position Position `json:"position"`
}

// Compare orders ranges by source, first and last position.
func (r Range) Compare(q Range) int {
	return cmp.Or(r.Source.Compare(q.Source), r.First.Compare(q.First), r.Last.Compare(q.Last))
}

// FirstChange returns the least change time in ranges, which must not be empty.
func FirstChange(ranges []Range) time.Time {
	first := ranges[0].Oldest
	for _, r := range ranges[1:] {
		if r.Oldest.Before(first) {
			first = r.Oldest
		}
	}
	return first
}

// Count returns how many changes ranges stand for.
func Count(ranges []Range) int {
	n := 0
	for _, r := range ranges {
		n += r.Count
	}
	return n
}

// Covers reports whether the range is covered by a row that was called at call
// and says of itself that its sources are covered through the given positions.
// Either proof is enough: the call was late enough for the range, or the row
// already accounts for everything up to the range's last position. Without a topic
// ID a position proves nothing: the topic may have been created anew, and offsets
// begin at 0 again.
func Covers(r Range, call time.Time, settle time.Duration, through []Through) bool {
	if !call.IsZero() && r.Settled(call, settle) {
		return true
	}
	for _, t := range through {
		if !t.Source.TopicID.IsZero() && t.Source.Same(r.Source) && r.Last.Compare(t.Position) <= 0 {
			return true
		}
	}
	return false
}

// Split divides ranges into those that [Covers] accepts and the rest, keeping
// their order.
func Split(ranges []Range, call time.Time, settle time.Duration, through []Through) (covered, pending []Range) {
	for _, r := range ranges {
		if Covers(r, call, settle, through) {
			covered = append(covered, r)
		} else {
			pending = append(pending, r)
		}
	}
	return covered, pending
}

// Coalesce sorts ranges and merges neighbours of one source that the same call
// will cover, given that the next call is expected at next and each later one D
// after the oldest change that is left. Ranges that different calls will cover
// stay apart: merged, the older would have to wait for the newer, and the
// optimum would not be reached any more. So where change times follow offsets,
// at most one range per source and call is left, however many changes there
// were. A zero next means that nothing is known of the run that will take them:
// then nothing is merged.
func Coalesce(ranges []Range, next time.Time, settings Settings) []Range {
	if len(ranges) < 2 || next.IsZero() {
		return ranges
	}
	plan := make([]scheduled, len(ranges))
	for i, r := range ranges {
		plan[i] = scheduled{Range: r}
	}
	schedule(plan, next, settings)
	plan = merge(plan)
	merged := make([]Range, len(plan))
	for i, p := range plan {
		merged[i] = p.Range
	}
	return merged
}

// Compact merges neighbours of one source among what a call covered, unless
// something lies between them that is still pending.
func Compact(covered, pending []Range) []Range {
	plan := make([]scheduled, 0, len(covered)+len(pending))
	for _, r := range covered {
		plan = append(plan, scheduled{Range: r})
	}
	for _, r := range pending {
		plan = append(plan, scheduled{Range: r, call: 1})
	}
	var compact []Range
	for _, p := range merge(plan) {
		if p.call == 0 {
			compact = append(compact, p.Range)
		}
	}
	return compact
}

// scheduled is a range, and which of the coming calls will cover it.
type scheduled struct {
	Range
	call int
}

// schedule finds the calls. What is left after each are always the newest ranges,
// so one pass in the order of their newest changes does.
func schedule(plan []scheduled, next time.Time, settings Settings) {
	slices.SortStableFunc(plan, func(a, b scheduled) int { return a.Newest.Compare(b.Newest) })
	oldest := make([]time.Time, len(plan)) // of the range and all behind it
	for i := len(plan) - 1; i >= 0; i-- {
		oldest[i] = plan[i].Oldest
		if i+1 < len(plan) && oldest[i+1].Before(oldest[i]) {
			oldest[i] = oldest[i+1]
		}
	}
	for call, i := 0, 0; ; call++ {
		for i < len(plan) && plan[i].Settled(next, time.Duration(settings.Settle)) {
			plan[i].call = call
			i++
		}
		if i == len(plan) {
			return
		}
		next = oldest[i].Add(time.Duration(settings.Delay))
		if soonest := plan[i].Newest.Add(time.Duration(settings.Settle)); soonest.After(next) {
			next = soonest // ranges wider than D - S: nothing settles by their due time
		}
	}
}

// merge sorts plan and merges neighbours of one source and call.
func merge(plan []scheduled) []scheduled {
	slices.SortStableFunc(plan, func(a, b scheduled) int { return a.Range.Compare(b.Range) })
	merged := plan[:0]
	for _, p := range plan {
		if n := len(merged); n > 0 && merged[n-1].Source.Same(p.Source) && merged[n-1].call == p.call {
			merged[n-1].Range = merged[n-1].merge(p.Range)
			continue
		}
		merged = append(merged, p)
	}
	return merged
}

// merge returns one range that stands for both; r.First must not be below.
func (r Range) merge(q Range) Range {
	if q.First.Compare(r.Last) <= 0 { // they overlap: a redelivery, cut differently
		r.Count = max(r.Count, q.Count)
	} else {
		r.Count += q.Count
	}
	if q.Last.Compare(r.Last) > 0 {
		r.Last = q.Last
	}
	if q.Oldest.Before(r.Oldest) {
		r.Oldest = q.Oldest
	}
	if q.Newest.After(r.Newest) {
		r.Newest = q.Newest
	}
	r.Version = r.Version.max(q.Version)
	return r
}

// Known tells redeliveries. The zero value knows nothing.
type Known struct {
	ranges []Range // sorted; none lies within another, so both ends ascend
}

// NewKnown knows ranges.
func NewKnown(ranges []Range) *Known {
	k := &Known{}
	for _, r := range ranges {
		k.Add(r)
	}
	return k
}

// Add reports whether r is new, and knows it from now on. It is a redelivery if it
// lies within one of the known ranges. A range that only overlaps known ones is
// new, even if they seem to make it up together: bridges cut their signals
// differently, and what looks like a sum of known parts may hold a change that is
// new. Taking it as new costs a row check at most.
func (k *Known) Add(r Range) bool {
	// The first that begins behind r's beginning, and the one before it, whose end
	// lies farther than that of any other which begins no later.
	i, _ := slices.BinarySearchFunc(k.ranges, r, func(k, r Range) int {
		return cmp.Or(k.Source.Compare(r.Source), k.First.Compare(r.First), -1)
	})
	if i > 0 && k.ranges[i-1].Contains(r.Source, r.First) && k.ranges[i-1].Contains(r.Source, r.Last) {
		return false
	}
	from, to := i, i // what lies within r
	for from > 0 && r.Contains(k.ranges[from-1].Source, k.ranges[from-1].First) {
		from--
	}
	for to < len(k.ranges) && r.Contains(k.ranges[to].Source, k.ranges[to].Last) {
		to++
	}
	k.ranges = slices.Replace(k.ranges, from, to, r)
	return true
}

// Advance returns through after a call covered the covered ranges while pending
// ones remain: per source, the greatest covered position below everything that
// is pending there. Positions never go back. The result is sorted by source.
func Advance(through []Through, covered, pending []Range) []Through {
	next := slices.Clone(through)
	for _, c := range covered {
		blocked := slices.ContainsFunc(pending, func(p Range) bool {
			return p.Source.Same(c.Source) && p.First.Compare(c.Last) <= 0
		})
		if blocked {
			continue
		}
		i := slices.IndexFunc(next, func(t Through) bool { return t.Source.Same(c.Source) })
		switch {
		case i < 0:
			next = append(next, Through{Source: c.Source, Position: c.Last})
		case next[i].Position.Compare(c.Last) < 0:
			next[i].Position = c.Last
		}
	}
	slices.SortFunc(next, func(a, b Through) int { return a.Source.Compare(b.Source) })
	return next
}
