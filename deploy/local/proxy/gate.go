package proxy

import (
	"io"
	"net"
	"sync"
)

// State is what a [Gate] does with connections.
type State int

// States.
const (
	Open   State = iota // all passes
	Cut                 // connections are closed, new ones at once
	Silent              // connections stay and are accepted, and nothing passes
)

// Gate is a listener whose connections can be cut or silenced, all at once.
type Gate struct {
	net.Listener

	mu      sync.Mutex
	state   State
	changed chan struct{} // closed and replaced whenever state changes
	conns   map[*gated]struct{}
	wg      sync.WaitGroup // of Forward
}

// Listen is [net.Listen] with a Gate as its result.
func Listen(network, address string) (*Gate, error) {
	listener, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return &Gate{Listener: listener, changed: make(chan struct{}), conns: map[*gated]struct{}{}}, nil
}

// Forward returns a Gate on a port of its own in front of target. Close it.
func Forward(target string) (*Gate, error) {
	g, err := Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g.wg.Go(func() {
		for {
			down, err := g.Accept()
			if err != nil {
				return
			}
			g.wg.Go(func() { g.forward(down, target) })
		}
	})
	return g, nil
}

func (g *Gate) forward(down net.Conn, target string) {
	defer down.Close()
	up, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer up.Close()
	var back sync.WaitGroup
	back.Go(func() {
		io.Copy(down, up) //nolint:errcheck // either side may end it
		down.Close()
		up.Close()
	})
	io.Copy(up, down) //nolint:errcheck
	up.Close()
	back.Wait()
}

// Address is where to connect to.
func (g *Gate) Address() string { return g.Addr().String() }

// Set changes what is done with connections, those that are open included.
func (g *Gate) Set(s State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state = s
	close(g.changed)
	g.changed = make(chan struct{})
	if s == Cut {
		for c := range g.conns {
			c.Conn.Close()
		}
	}
}

// Close ends the listener and all connections, and waits for those of Forward.
func (g *Gate) Close() error {
	err := g.Listener.Close()
	g.Set(Cut)
	g.wg.Wait()
	return err
}

// Accept implements [net.Listener].
func (g *Gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &gated{Conn: conn, gate: g, closed: make(chan struct{})}
		g.mu.Lock()
		cut := g.state == Cut
		if !cut {
			g.conns[c] = struct{}{}
		}
		g.mu.Unlock()
		if !cut {
			return c, nil
		}
		conn.Close()
	}
}

// gated is a connection that a Gate let in.
type gated struct {
	net.Conn
	gate   *Gate
	once   sync.Once
	closed chan struct{}
}

func (c *gated) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// pass waits while the gate is silent.
func (c *gated) pass() {
	for {
		c.gate.mu.Lock()
		silent, changed := c.gate.state == Silent, c.gate.changed
		c.gate.mu.Unlock()
		if !silent {
			return
		}
		select {
		case <-changed:
		case <-c.closed:
			return
		}
	}
}

func (c *gated) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.pass()
	}
	return n, err
}

func (c *gated) Write(p []byte) (int, error) {
	c.pass()
	return c.Conn.Write(p)
}
