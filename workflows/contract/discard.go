package contract

import (
	"slices"
	"time"
)

const (
	// SignalDiscard drops changes of a parked account; carries a [Discard].
	SignalDiscard = "discard"
	// RecordDiscard is the activity that writes to the sync log what was dropped;
	// its input is a [Discarded].
	RecordDiscard = "RecordDiscard"
)

// Discard is an operator's decision to give up changes of a parked account, and
// replays that want a call of it.
type Discard struct {
	// Ranges are the changes as the operator was shown them. Nothing else is
	// dropped: changes that have come since stay.
	Ranges []Range `json:"ranges"`
	// Replays are the IDs of the replays that the operator was shown.
	Replays  []string `json:"replays,omitempty"`
	Operator string   `json:"operator"`
	Reason   string   `json:"reason"`
}

// Discarded is the input of [RecordDiscard].
type Discarded struct {
	Account string `json:"account"`
	// Number tells the discards of one run apart, from 1.
	Number   int       `json:"number"`
	Dropped  []Range   `json:"dropped"`
	Operator string    `json:"operator"`
	Reason   string    `json:"reason"`
	At       time.Time `json:"at"` // when the run took it in
	// Tries is how many attempts had failed.
	Tries int `json:"tries,omitempty"`
	// ReplayID names the replays that were given up, see [ReplayIDs].
	ReplayID string `json:"replay_id,omitempty"`
}

// Without removes from pending what was shown, and returns what is left and what
// was dropped. Ranges may have been merged since they were shown, with each other
// and with changes that have come since:
//
//   - one that lies within a range that was shown is dropped
//   - one that those shown make up, by their ends and their count, is dropped
//   - one that begins with changes that were shown is cut after them
//   - any other stays whole: which of its changes were shown cannot be told
//
// So no change is dropped that was not shown, as far as a [Range] says what it
// stands for.
func Without(pending, shown []Range) (left, dropped []Range) {
	shown = slices.Clone(shown)
	slices.SortFunc(shown, Range.Compare)
	for _, p := range pending {
		if p.madeOf(shown) {
			dropped = append(dropped, p)
			continue
		}
		rest, gone := p, false
		for _, s := range shown {
			if !s.Contains(rest.Source, rest.First) {
				continue
			}
			if gone = s.Contains(rest.Source, rest.Last); gone {
				dropped = append(dropped, rest)
				break
			}
			front := rest
			front.Last, front.Count, front.Newest = s.Last, min(s.Count, rest.Count-1), s.Newest
			dropped = append(dropped, front)
			rest.First = Position{Epoch: s.Last.Epoch, Offset: s.Last.Offset + 1}
			rest.Count -= front.Count
		}
		if !gone {
			left = append(left, rest)
		}
	}
	return left, dropped
}

// WithoutReplays removes from requests those with an ID that was shown, and returns
// what is left and what was given up.
func WithoutReplays(requests []ReplayRequest, shown []string) (left, givenUp []ReplayRequest) {
	for _, r := range requests {
		if slices.Contains(shown, r.ID) {
			givenUp = append(givenUp, r)
		} else {
			left = append(left, r)
		}
	}
	return left, givenUp
}

// madeOf reports whether parts, which are sorted, have just the changes of r. The
// count alone does not tell: it is the least that a range merged with redeliveries
// can stand for.
func (r Range) madeOf(parts []Range) bool {
	count, last := 0, Position{}
	for _, p := range parts {
		if !r.Contains(p.Source, p.First) || !r.Contains(p.Source, p.Last) {
			continue
		}
		switch {
		case count == 0 && p.First != r.First:
			return false
		case count > 0 && p.First.Compare(last) <= 0:
			return false // they overlap, so counts do not add up
		}
		count, last = count+p.Count, p.Last
	}
	return count > 0 && count == r.Count && last == r.Last
}
