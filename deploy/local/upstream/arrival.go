package upstream

import (
	"context"
	"net"
	"net/http"
	"time"
)

type connKey struct{}

// Serve serves until server is closed, and has the operating system note when
// requests arrive, where it can (Linux); see [Arrived].
func Serve(server *http.Server, listener net.Listener) error {
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
	return server.Serve(stamped(listener))
}

// Arrived returns when the request reached this machine, if the operating system
// noted it. Ask before the body is read to its end: the next request may have
// arrived then.
func Arrived(r *http.Request) (time.Time, bool) {
	if conn, ok := r.Context().Value(connKey{}).(*stampedConn); ok {
		return conn.arrived()
	}
	return time.Time{}, false
}
