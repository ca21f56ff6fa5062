package process_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/process"
)

// slow is a worker whose start takes until it is released.
type slow struct {
	release chan error
	stopped chan struct{}
}

func (s slow) Start() error { return <-s.release }
func (s slow) Stop()        { close(s.stopped) }

func TestStartWorkerDoesNotOutlastItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := slow{make(chan error, 1), make(chan struct{})}
	cancel()
	require.ErrorIs(t, process.StartWorker(ctx, s), context.Canceled)
	s.release <- nil
	<-s.stopped // what started after all is stopped

	refused := errors.New("refused")
	s = slow{make(chan error, 1), make(chan struct{})}
	s.release <- refused
	require.Equal(t, refused, process.StartWorker(t.Context(), s))
}
