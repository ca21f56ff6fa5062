package upstream

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// stamped returns a listener whose connections know when what they read had
// arrived, by the kernel's note. A time taken by this process would be when it
// came to look: on a busy machine some hundred milliseconds later, and what
// arrived meanwhile would be seen all at once.
func stamped(listener net.Listener) net.Listener {
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return listener
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return listener
	}
	var failed error
	err = raw.Control(func(fd uintptr) { // connections inherit it
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_TIMESTAMPNS, 1)
	})
	if err != nil || failed != nil {
		return listener
	}
	return stampedListener{tcp}
}

type stampedListener struct{ *net.TCPListener }

func (l stampedListener) Accept() (net.Conn, error) {
	conn, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return conn, nil
	}
	return &stampedConn{TCPConn: conn, raw: raw}, nil
}

// stampedConn remembers when what was read last had arrived.
type stampedConn struct {
	*net.TCPConn
	raw syscall.RawConn
	at  atomic.Int64 // ns since 1970; 0: nothing yet
}

func (c *stampedConn) arrived() (time.Time, bool) {
	at := c.at.Load()
	return time.Unix(0, at), at != 0
}

func (c *stampedConn) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	control := make([]byte, 64)
	var controls int
	var failed error
	err = c.raw.Read(func(fd uintptr) bool {
		n, controls, _, _, failed = syscall.Recvmsg(int(fd), b, control, syscall.MSG_DONTWAIT)
		return failed != syscall.EAGAIN && failed != syscall.EINTR
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Addr: c.RemoteAddr(), Err: os.NewSyscallError("recvmsg", failed)}
	case n == 0:
		return 0, io.EOF
	}
	c.note(control[:controls])
	return n, nil
}

func (c *stampedConn) note(control []byte) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return
	}
	for _, m := range messages {
		if m.Header.Level == syscall.SOL_SOCKET && m.Header.Type == syscall.SO_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(syscall.Timespec{})) {
			c.at.Store((*syscall.Timespec)(unsafe.Pointer(&m.Data[0])).Nano())
		}
	}
}
