package process_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quiesce-io/quiesce/internal/process"
)

// One dependency goes out, another hangs, a third is well: each is told of by
// itself, and what is over is forgotten.
func TestDependencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var failure atomic.Pointer[error]
		d := process.NewDependencies(slog.New(slog.NewTextHandler(&log, nil)),
			process.Dependency{Name: "kafka", At: "KAFKA_BROKERS=k:1", Ask: func(context.Context) error {
				if err := failure.Load(); err != nil {
					return *err
				}
				return nil
			}},
			process.Dependency{Name: "spanner", Ask: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
			process.Dependency{Name: "temporal", Ask: func(context.Context) error { return nil }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		began := time.Now()
		go func() { ended <- d.Run(ctx) }()

		time.Sleep(4 * time.Second)
		synctest.Wait()
		all := d.Snapshot()
		require.Zero(t, all[0].OutSince)
		require.Equal(t, began.Add(4*time.Second), all[1].OutSince, "one that hangs is out, and holds nobody up")
		require.Equal(t, "context deadline exceeded", all[1].Error)
		require.Zero(t, all[2].OutSince)

		broken := errors.New("no\n  broker")
		failure.Store(&broken)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, "no broker", d.Snapshot()[0].Error, "in one line")
		require.Equal(t, began.Add(5*time.Second), d.Snapshot()[0].OutSince)
		time.Sleep(time.Minute)
		require.Equal(t, began.Add(5*time.Second), d.Snapshot()[0].OutSince, "since when it was first out")
		failure.Store(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, d.Snapshot()[0].OutSince, "one that is out is asked every second")
		require.Empty(t, d.Snapshot()[0].Error)
		cancel()
		require.NoError(t, <-ended)
		require.Equal(t, 1, strings.Count(log.String(), "kafka is out"), "said once")
		require.Equal(t, 1, strings.Count(log.String(), "kafka answers again"))
	})
	require.Empty(t, (*process.Dependencies)(nil).Snapshot())
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r process.Refusals
		call := func(method string, err error) {
			got := r.Intercept(t.Context(), "/service/"+method, nil, nil, nil,
				func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return err })
			require.Equal(t, err, got, "passed on")
		}
		denied := status.Error(codes.PermissionDenied, "not you")
		call("Poll", nil)
		call("Start", status.Error(codes.Unavailable, "away"))
		require.NoError(t, r.Err(), "nobody refused")
		call("Poll", denied)
		require.ErrorContains(t, r.Err(), "refuses Poll: not you; check TEMPORAL_API_KEY")
		call("Start", nil)
		require.Error(t, r.Err(), "that another request is answered changes nothing")
		call("Poll", nil)
		require.NoError(t, r.Err())
		call("Start", denied)
		time.Sleep(61 * time.Second)
		require.NoError(t, r.Err(), "nobody tried again")
	})
}
