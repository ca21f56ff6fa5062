package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"path"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// GRPC stands between a process and a gRPC server.
type GRPC struct {
	// Address is where to connect to.
	Address string

	target *grpc.ClientConn
	server *grpc.Server
	wg     sync.WaitGroup

	mu      sync.Mutex
	method  string        // last element of the name of the one to hold
	held    chan struct{} // closed when it was called
	release chan struct{} // closed when it may go on
	refuse  func(method string) error
	change  map[string]func([]byte) []byte
}

// NewGRPC starts a proxy in front of the server at target. Close it.
func NewGRPC(target string) (*GRPC, error) {
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		conn.Close()
		return nil, err
	}
	x := &GRPC{Address: listener.Addr().String(), target: conn, change: map[string]func([]byte) []byte{}}
	x.server = grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(x.handle), grpc.MaxRecvMsgSize(64<<20))
	x.wg.Go(func() { x.server.Serve(listener) }) //nolint:errcheck // ends with Stop
	return x, nil
}

// Hold holds back every later request of the method until Pass is called; those
// whose client is gone by then never reach the server. The channel is closed
// when the first has come.
func (x *GRPC) Hold(method string) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.method, x.held, x.release = method, make(chan struct{}), make(chan struct{})
	return x.held
}

// Pass lets through what is held back, and everything later.
func (x *GRPC) Pass() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.method = ""
	close(x.release)
}

// Refuse answers every later request, instead of the server, for whose method,
// the last element of its name, refuse returns an error; nil refuses none.
func (x *GRPC) Refuse(refuse func(method string) error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.refuse = refuse
}

// Change has every later answer of the method pass change, encoded; nil leaves
// them as they are.
func (x *GRPC) Change(method string, change func([]byte) []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.change[method] = change
}

// Cut ends all connections and accepts no more.
func (x *GRPC) Cut() { x.server.Stop() }

// Close ends the proxy.
func (x *GRPC) Close() {
	x.Cut()
	x.wg.Wait()
	x.target.Close()
}

// rules returns what a request of the method has to wait for, nil if nothing,
// and says to whoever waits that it has come; what its answers pass; and why it
// is refused, nil if it is not.
func (x *GRPC) rules(method string) (release <-chan struct{}, change func([]byte) []byte, refused error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.refuse != nil {
		refused = x.refuse(method)
	}
	if x.method == method {
		select {
		case <-x.held:
		default:
			close(x.held)
		}
		release = x.release
	}
	return release, x.change[method], refused
}

// handle forwards one call of any kind, message by message.
func (x *GRPC) handle(_ any, down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	release, change, refused := x.rules(path.Base(method))
	if refused != nil {
		return refused
	}
	if release != nil {
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
		if err := forward(down, up, nil); err != nil {
			cancel()
			return
		}
		up.CloseSend() //nolint:errcheck
	})
	if err := forward(up, down, change); err != nil {
		return err
	}
	down.SetTrailer(up.Trailer())
	return nil
}

type stream interface {
	SendMsg(any) error
	RecvMsg(any) error
}

// forward copies messages, changed, until from ends.
func forward(from, to stream, change func([]byte) []byte) error {
	for {
		var message frame
		if err := from.RecvMsg(&message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if change != nil {
			message.bytes = change(message.bytes)
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
