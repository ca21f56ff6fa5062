package process

import "context"

// StartWorker starts a Temporal worker, or returns ctx's error once that is done:
// the SDK's start asks the server, knows no context, and takes longer than a stop
// may where the server is slow. A worker that starts after all is stopped.
func StartWorker(ctx context.Context, w interface {
	Start() error
	Stop()
}) error {
	started := make(chan error, 1) // it may outlive us
	go func() { started <- w.Start() }()
	select {
	case err := <-started:
		return err
	case <-ctx.Done():
		go func() {
			if <-started == nil {
				w.Stop()
			}
		}()
		return ctx.Err()
	}
}
