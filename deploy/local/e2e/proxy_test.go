package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// proxy stands between one process and a gRPC server and can hold back a
// method, so that the process can be killed at a certain point.
type proxy struct {
	address string
	target  *grpc.ClientConn
	server  *grpc.Server

	mu      sync.Mutex
	method  string        // last element of the name of the one to hold
	held    chan struct{} // closed when it was called
	release chan struct{} // closed when it may go on
}

// newProxy starts a proxy in front of the server at target.
func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := &proxy{address: listener.Addr().String(), target: conn}
	x.server = grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(x.handle), grpc.MaxRecvMsgSize(64<<20))
	var wg sync.WaitGroup
	wg.Go(func() { x.server.Serve(listener) }) //nolint:errcheck // ends with Stop
	t.Cleanup(func() { x.cut(); wg.Wait(); conn.Close() })
	return x
}

// hold holds back every later request of the method until pass is called; those
// whose client is gone by then never reach the server. The channel is closed
// when the first has come.
func (x *proxy) hold(method string) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.method, x.held, x.release = method, make(chan struct{}), make(chan struct{})
	return x.held
}

// cut ends all connections and accepts no more.
func (x *proxy) cut() { x.server.Stop() }

// pass lets through what is held back, and everything later.
func (x *proxy) pass() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.method = ""
	close(x.release)
}

// holds returns what a request of the method has to wait for, nil if nothing,
// and says to whoever waits that it has come.
func (x *proxy) holds(method string) (release <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.method == "" || !strings.HasSuffix(method, "/"+x.method) {
		return nil
	}
	select {
	case <-x.held:
	default:
		close(x.held)
	}
	return x.release
}

// handle forwards one call of any kind, message by message.
func (x *proxy) handle(_ any, down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	if release := x.holds(method); release != nil {
		select {
		case <-release:
		case <-down.Context().Done():
			return down.Context().Err()
		}
	}
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md.Copy())
	}
	up, err := x.target.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait() // the stream down ends with this function
	defer cancel()
	wg.Go(func() {
		if err := forward(down, up); err != nil {
			cancel()
			return
		}
		up.CloseSend() //nolint:errcheck
	})
	if err := forward(up, down); err != nil {
		return err
	}
	down.SetTrailer(up.Trailer())
	return nil
}

type stream interface {
	SendMsg(any) error
	RecvMsg(any) error
}

// forward copies messages until from ends.
func forward(from, to stream) error {
	for {
		var message frame
		if err := from.RecvMsg(&message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := to.SendMsg(&message); err != nil {
			return err
		}
	}
}

// frame is a message that nobody decodes.
type frame struct{ bytes []byte }

type rawCodec struct{}

func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error) { return v.(*frame).bytes, nil }
func (rawCodec) Unmarshal(data []byte, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return status.Error(codes.Internal, "not a frame")
	}
	f.bytes = append([]byte(nil), data...)
	return nil
}
