package kafkatest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/ledger"
)

// held returns how many of the offsets the committed metadata names as done.
func (f *fixture) held(partition int32, offsets map[int64]bool) int {
	f.t.Helper()
	m, err := ledger.Decode(f.offsets()[partition].Metadata)
	require.NoError(f.t, err)
	n := 0
	for _, r := range m.Runs {
		for o := r.First; o <= r.Last; o++ {
			require.True(f.t, offsets[o], "the map names %d, which is not done", o)
			n++
		}
	}
	return n
}

// A crash with 5,000 uncommitted, half of them done: the next owner signals
// what the map does not name, and nothing that it names.
func TestCrashWithHalfOfItDone(t *testing.T) {
	const n = 5000
	random := rand.New(rand.NewPCG(3, 4))
	var atRandom, alternating, tail []int
	for i := 1; i < n; i++ { // 0 is the stuck head
		if random.IntN(2) == 0 {
			atRandom = append(atRandom, i)
		}
		if i%2 == 1 {
			alternating = append(alternating, i)
		}
		if i > n/2 {
			tail = append(tail, i)
		}
	}
	for name, done := range map[string][]int{"at random": atRandom, "every other one": alternating, "the second half": tail} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1)
			f.fill(1, n)
			a := f.start(f.config())
			changes := a.untilSubmitted(n)
			offsets := make(map[int64]bool)
			var finished []buffer.Change
			for _, i := range done {
				finished = append(finished, changes[i])
				offsets[changes[i].Position.Offset] = true
			}
			f.complete(finished...)
			held := 0
			f.until("map committed", func() bool {
				o := f.offsets()[0]
				if !strings.HasPrefix(o.Metadata, "quiesce1:") || len(o.Metadata) < 40 {
					return false
				}
				held = f.held(0, offsets)
				return held == len(done) || len(o.Metadata) > 4090
			})
			size := len(f.offsets()[0].Metadata)
			require.LessOrEqual(t, size, ledger.MaxMetadataBytes)
			require.Zero(t, f.committedAt(0))
			a.crash()

			b := f.start(f.config())
			f.until("taken over", func() bool {
				return len(b.sink.all())+int(b.counts.get("bridge.skipped_completed")) == n
			})
			again := 0
			for _, c := range b.sink.all() {
				if offsets[c.Position.Offset] {
					again++
				}
			}
			require.EqualValues(t, held, b.counts.get("bridge.skipped_completed"))
			require.Equal(t, len(done)-held, again)
			if name != "every other one" {
				require.Zero(t, again, "all of it fits")
			}
			t.Logf("%d uncommitted, %d done (%s): the map held %d in %d bytes; the next owner submitted %d, of which %d had been done",
				n, len(done), name, held, size, len(b.sink.all()), again)
			f.untilFlow(b)
			b.stop()
		})
	}
}

// The largest metadata that brokers take, and what they say of more.
func TestMetadataOfABrokersLimit(t *testing.T) {
	f := newFixture(t, 1)
	for size, want := range map[int]error{ledger.MaxMetadataBytes: nil, ledger.MaxMetadataBytes + 1: kerr.OffsetMetadataTooLarge} {
		if !on.apache && want != nil {
			want = nil // kfake takes any
		}
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: f.topic, At: 0, LeaderEpoch: -1, Metadata: strings.Repeat("x", size)})
		responses, err := f.admin.CommitOffsets(t.Context(), "other-"+f.group, offsets)
		require.NoError(t, err)
		require.Equal(t, want, responses.Error(), "%d bytes", size)
	}
}

// The group has been used by another program, which filled the metadata.
func TestForeignMetadataIsNoObstacle(t *testing.T) {
	f := newFixture(t, 1)
	f.fill(1, 10)
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: f.topic, At: 4, LeaderEpoch: -1, Metadata: strings.Repeat("x", ledger.MaxMetadataBytes)})
	require.NoError(t, f.admin.CommitAllOffsets(t.Context(), f.group, offsets))
	f.mu.Lock()
	f.produced[0] = f.produced[0][4:]
	f.mu.Unlock()
	a := f.start(f.config())
	changes := a.untilSubmitted(6)
	require.Equal(t, fmt.Sprint([]string{"0:4", "0:5", "0:6", "0:7", "0:8", "0:9"}), fmt.Sprint(a.sink.accounts()))
	f.complete(changes...)
	f.untilCommitted(0, 10)
	a.stop()
}
