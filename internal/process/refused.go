package process

import (
	"context"
	"fmt"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// refusedFor is how long a refusal is told of that was not repeated: whoever is
// refused tries again sooner.
const refusedFor = time.Minute

// Refusals are the requests that a server answers by refusing us: it is there,
// and says so when asked, yet nothing gets done. The zero value has none.
type Refusals struct {
	mu      sync.Mutex
	methods map[string]refusal // by name, without the service's
}

type refusal struct {
	at  time.Time
	err error
}

// Intercept notes how requests end; give it to the client.
func (r *Refusals) Intercept(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := invoke(ctx, method, request, reply, conn, options...)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated:
		if path.Base(method) == "DescribeTaskQueue" {
			return err // only what explains a wait asks for it; the work goes on
		}
		if r.methods == nil {
			r.methods = map[string]refusal{}
		}
		r.methods[path.Base(method)] = refusal{time.Now(), err}
	default:
		delete(r.methods, path.Base(method))
	}
	return err
}

// Err returns the latest refusal that still stands, nil if there is none.
func (r *Refusals) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var latest refusal
	var of string
	for method, refused := range r.methods {
		if refused.at.After(latest.at) {
			latest, of = refused, method
		}
	}
	if of == "" || time.Since(latest.at) > refusedFor {
		return nil
	}
	return fmt.Errorf("refuses %s: %s; check TEMPORAL_API_KEY or TEMPORAL_TLS_*, and what they may do in TEMPORAL_NAMESPACE", of, status.Convert(latest.err).Message())
}
