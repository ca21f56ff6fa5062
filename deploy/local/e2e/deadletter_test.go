package e2e

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestKeys tells of changes under keys that are hard on the way, and of some
// that are no keys at all.
func TestKeys(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	p.startBoth()
	bad := [][]byte{nil, {}, bytes.Repeat([]byte("k"), 513), {'a', 0xff, 'b'}}
	for i, key := range bad {
		p.produce(key, []byte(strconv.Itoa(i)))
	}
	good := []string{
		"a/b", "/", "..", ".", "a%2Fb", "a b+c?d=e&f#g", "Alice", "alice", "x-1", "ünï/cødé 鍵 🔑", "nul\x00byte", "line\nfeed",
		strings.Repeat("k", 512), strings.Repeat("ä", 256),
	}
	for _, account := range good {
		p.upstream.Change(account)
		p.produce([]byte(account), nil) // a tombstone tells of a change, too
		p.change(account)
	}
	p.drained()
	v := p.verdict()
	p.noWaste(v)
	if len(v.rows) != len(good) {
		t.Errorf("%d rows, want %d", len(v.rows), len(good))
	}
	for _, account := range good {
		if row, calls := v.rows[account], p.calls(account); row.Version != 2 || calls == 0 {
			t.Errorf("%q: version %d, want 2, with %d calls", account, row.Version, calls)
		}
	}

	letters, err := world.ReadAll(t.Context(), p.letters)
	p.must(err)
	if len(letters) != len(bad) {
		t.Fatalf("%d dead letters, want %d", len(letters), len(bad))
	}
	for _, letter := range letters {
		headers := map[string]string{}
		for _, h := range letter.Headers {
			headers[h.Key] = string(h.Value)
		}
		i, err := strconv.Atoi(string(letter.Value))
		if err != nil || !bytes.Equal(letter.Key, bad[i]) || (letter.Key == nil) != (bad[i] == nil) {
			t.Errorf("dead letter with key %q and value %q", letter.Key, letter.Value)
		}
		if headers["quiesce-topic"] != p.topic || headers["quiesce-reason"] == "" || headers["quiesce-timestamp"] == "" {
			t.Errorf("headers of key %q: %v", letter.Key, headers)
		}
		for _, number := range []string{"quiesce-partition", "quiesce-offset"} {
			if _, err := strconv.Atoi(headers[number]); err != nil {
				t.Errorf("headers of key %q: %v", letter.Key, headers)
			}
		}
	}
}

// produce produces a record that is not one of the load's.
func (p *pipeline) produce(key, value []byte) {
	p.t.Helper()
	p.must(p.kafka.ProduceSync(p.t.Context(), &kgo.Record{Topic: p.topic, Key: key, Value: value}).FirstErr())
}

// TestTombstoneIsAChange: a record without a value, and nothing after it.
func TestTombstoneIsAChange(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	p.startBoth()
	p.change("alice")
	p.drained()
	p.upstream.Delete("alice")
	p.produce([]byte("alice"), nil)
	p.drained()
	v := p.verdict()
	p.noWaste(v)
	if row := v.rows["alice"]; !row.Deleted || len(v.calls) != 2 {
		t.Errorf("row %+v after %d calls, want it marked deleted by the second", row, len(v.calls))
	}
}
