package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/where"
)

// TestWhereFollowsARecord: from never seen to committed, as the bridge knows it.
func TestWhereFollowsARecord(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.start(w.config(), nil, nil)
		w.until("it has everything", func() bool { return b.owned() == partitions })
		record := where.Record{Topic: "changes", Partition: 1, Offset: 0}
		is := func(state where.State, why string) where.Answer {
			t.Helper()
			answer, err := b.Where(t.Context(), record)
			require.NoError(t, err)
			require.Equal(t, state, answer.State, answer.Why)
			require.Contains(t, answer.Why, why)
			return answer
		}
		_, err := b.Where(t.Context(), where.Record{Topic: "changes", Partition: 99})
		require.ErrorContains(t, err, "changes/99: this bridge does not have")
		is(where.NeverSeen, "has not come to it")

		w.temporal.set(func(string) error { return errors.New("away") })
		w.produce(partitions)
		time.Sleep(2 * time.Second)
		answer := is(where.Buffered, "away")
		require.Equal(t, "account-1", answer.Account)

		w.temporal.set(nil)
		time.Sleep(11 * time.Second)
		answer = is(where.Signalled, "settling")
		require.Equal(t, "crm/account/account-1", answer.Events[1].WorkflowID)
		require.Equal(t, "/namespaces/default/workflows/crm%2Faccount%2Faccount-1/"+answer.Events[1].RunID+"/history", answer.Events[1].Link)
		require.Contains(t, answer.More[0], "--run-id "+answer.Events[1].RunID)

		time.Sleep(40 * time.Second)
		answer = is(where.Committed, "committed")
		require.EqualValues(t, 1, answer.Committed)

		// Done while something before it is not.
		w.temporal.set(func(string) error { return errors.New("away") })
		w.produce(partitions)
		require.NoError(t, w.kafka.ProduceSync(t.Context(), &kgo.Record{Topic: "changes", Partition: 1, Value: []byte("no key")}).FirstErr())
		time.Sleep(2 * time.Second)
		record.Offset = 2
		is(where.Covered, "waits for changes before it")
	})
}

// TestWhereSaysNothingOfLanesThatHang: the record may have a run, or none.
func TestWhereSaysNothingOfLanesThatHang(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.start(w.config(), nil, nil)
		w.until("it has everything", func() bool { return b.owned() == partitions })
		hang := make(chan struct{})
		w.temporal.set(func(request string) error { hangOn(request, "signal", hang); return nil })
		w.produce(1)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := b.Where(ctx, where.Record{Topic: "changes"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		w.temporal.set(nil)
		close(hang)
		time.Sleep(time.Second)
		answer, err := b.Where(t.Context(), where.Record{Topic: "changes"})
		require.NoError(t, err)
		require.Equal(t, where.Signalled, answer.State)
	})
}

// TestWhereOverHTTP: the route, and what it refuses.
func TestWhereOverHTTP(t *testing.T) {
	w := newWorld(t, nil)
	t.Cleanup(w.close)
	config := w.config()
	config.Common.StatusAddr = freeAddress(t)
	b := w.start(config, nil, nil)
	w.until("it has everything", func() bool { return b.owned() == partitions })
	get := func(query string) (int, where.Answer) {
		response, err := http.Get("http://" + config.Common.StatusAddr + "/where?" + query)
		require.NoError(t, err)
		defer response.Body.Close()
		var answer where.Answer
		if response.StatusCode == http.StatusOK {
			require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
		}
		return response.StatusCode, answer
	}
	code, answer := get("topic=changes&partition=2&offset=7")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, where.NeverSeen, answer.State)
	require.Equal(t, "changes/2/7", answer.Record)
	code, _ = get("topic=changes&partition=9&offset=7")
	require.Equal(t, http.StatusNotFound, code)
	code, _ = get("topic=changes&partition=two&offset=7")
	require.Equal(t, http.StatusBadRequest, code)
}
