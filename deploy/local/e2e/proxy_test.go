package e2e

import (
	"testing"

	"github.com/quiesce-io/quiesce/deploy/local/proxy"
)

// newProxy starts a proxy in front of the gRPC server at target.
func newProxy(t *testing.T, target string) *proxy.GRPC {
	t.Helper()
	x, err := proxy.NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}
