package spannermemory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"cloud.google.com/go/spanner/spannertest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	methodQuery = "/google.spanner.v1.Spanner/ExecuteStreamingSql"
	methodDDL   = "/google.spanner.admin.database.v1.DatabaseAdmin/UpdateDatabaseDdl"
)

// Server is an in-memory Spanner that listens.
type Server struct {
	// Addr is its host:port.
	Addr string

	fake    *spannertest.Server
	backend *grpc.ClientConn
	front   *grpc.Server
	schema  schema
	ended   chan struct{}
}

// Start returns a server that listens on address until it is closed.
func Start(address string) (*Server, error) {
	fake, err := spannertest.NewServer("127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start spannertest: %w", err)
	}
	fake.SetLogger(func(string, ...any) {})
	backend, err := grpc.NewClient(fake.Addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		fake.Close()
		return nil, fmt.Errorf("connect to spannertest: %w", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		backend.Close()
		fake.Close()
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	s := &Server{Addr: listener.Addr().String(), fake: fake, backend: backend, ended: make(chan struct{})}
	s.front = grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(s.handle))
	go func() {
		defer close(s.ended)
		s.front.Serve(listener) //nolint:errcheck // it ends when it is closed
	}()
	return s, nil
}

// Close ends the server and everything in it.
func (s *Server) Close() {
	s.front.Stop()
	<-s.ended
	s.backend.Close()
	s.fake.Close()
}

// handle answers one call. All of Spanner's calls have one request.
func (s *Server) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	if method == methodQuery {
		var query spannerpb.ExecuteSqlRequest
		if err := proto.Unmarshal(request, &query); err != nil {
			return status.Errorf(codes.InvalidArgument, "query: %v", err)
		}
		if strings.Contains(strings.ToUpper(query.Sql), "INFORMATION_SCHEMA") {
			return s.answer(stream, &query)
		}
	}
	if err := s.forward(stream, method, request); err != nil {
		return err
	}
	if method == methodDDL {
		var ddl databasepb.UpdateDatabaseDdlRequest
		if err := proto.Unmarshal(request, &ddl); err != nil {
			return status.Errorf(codes.InvalidArgument, "DDL: %v", err)
		}
		return s.schema.apply(ddl.Statements)
	}
	return nil
}

// answer answers a query on INFORMATION_SCHEMA.
func (s *Server) answer(stream grpc.ServerStream, query *spannerpb.ExecuteSqlRequest) error {
	result, err := s.schema.query(query.Sql, query.Params)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "spannermemory: %v", err)
	}
	message, err := proto.Marshal(result)
	if err != nil {
		return status.Errorf(codes.Internal, "spannermemory: %v", err)
	}
	return stream.SendMsg(&message)
}

// forward passes the call on and its answers back.
func (s *Server) forward(stream grpc.ServerStream, method string, request []byte) error {
	incoming, _ := metadata.FromIncomingContext(stream.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(stream.Context(), incoming.Copy()))
	defer cancel()
	backend, err := s.backend.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	if err := backend.SendMsg(&request); err != nil {
		return err
	}
	if err := backend.CloseSend(); err != nil {
		return err
	}
	for {
		var message []byte
		if err := backend.RecvMsg(&message); errors.Is(err, io.EOF) {
			stream.SetTrailer(backend.Trailer())
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
	}
}

// raw is a codec that leaves messages as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) {
	message, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("spannermemory: cannot send %T", v)
	}
	return *message, nil
}

func (raw) Unmarshal(data []byte, v any) error {
	message, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("spannermemory: cannot receive %T", v)
	}
	*message = append([]byte(nil), data...) // data belongs to grpc
	return nil
}

func (raw) Name() string { return "proto" }
