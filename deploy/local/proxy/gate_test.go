package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// echo answers each line with itself.
func echo(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { io.Copy(conn, conn); conn.Close() }) //nolint:errcheck // the other side ends it
		}
	})
	t.Cleanup(func() { listener.Close(); wg.Wait() })
	return listener.Addr().String()
}

func TestGate(t *testing.T) {
	g, err := Forward(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", g.Address())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	ask := func(conn net.Conn, patience time.Duration) error {
		fmt.Fprintln(conn, "hello") //nolint:errcheck // the answer tells
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		_, err := bufio.NewReader(conn).ReadString('\n')
		return err
	}
	timedOut := func(err error) bool { e, ok := err.(net.Error); return ok && e.Timeout() }

	first := dial()
	defer first.Close()
	if err := ask(first, time.Minute); err != nil {
		t.Fatalf("open: %v", err)
	}
	g.Set(Silent)
	if err := ask(first, 50*time.Millisecond); !timedOut(err) {
		t.Errorf("silent, a connection that was open: %v", err)
	}
	second := dial()
	defer second.Close()
	if err := ask(second, 50*time.Millisecond); !timedOut(err) {
		t.Errorf("silent, a new connection: %v", err)
	}
	g.Set(Open)
	if err := ask(second, time.Minute); err != nil {
		t.Errorf("open again: %v", err)
	}
	g.Set(Cut)
	if err := ask(second, time.Minute); err == nil || timedOut(err) {
		t.Errorf("cut, a connection that was open: %v", err)
	}
	third := dial()
	defer third.Close()
	if err := ask(third, time.Minute); err == nil || timedOut(err) {
		t.Errorf("cut, a new connection: %v", err)
	}
	g.Set(Open)
	fourth := dial()
	defer fourth.Close()
	if err := ask(fourth, time.Minute); err != nil {
		t.Errorf("open at last: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}
