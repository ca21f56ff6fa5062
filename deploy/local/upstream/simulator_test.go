package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// clock is a time that only the test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.t }

func (c *clock) advance(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.t = c.t.Add(d) }

func simulator(t *testing.T, cfg Config) (*Simulator, *clock, string) {
	t.Helper()
	c := &clock{t: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	s := New(cfg)
	s.now = c.now
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, c, server.URL
}

func get(t *testing.T, base, account string) (status int, version int64, header http.Header) {
	t.Helper()
	response, err := http.Get(base + PathPrefix + url.PathEscape(account))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var body payload
	if response.StatusCode == http.StatusOK {
		if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		if body.Account != account {
			t.Errorf("answer for %q says %q", account, body.Account)
		}
	}
	return response.StatusCode, body.Version, response.Header
}

func TestChangesBecomeReadableInOrderWithinTheLag(t *testing.T) {
	const lag = 2 * time.Second
	s, c, base := simulator(t, Config{MaxLag: lag, Seed: 7})
	var changes []Change
	seen := int64(0)
	late := false
	for range 40 {
		change := s.Change("a")
		if change.ReadableAt.Before(change.At) || change.ReadableAt.After(change.At.Add(lag)) {
			t.Fatalf("change %+v is outside its lag", change)
		}
		if n := len(changes); n > 0 && change.ReadableAt.Before(changes[n-1].ReadableAt) {
			t.Fatalf("%+v is readable before %+v", change, changes[n-1])
		}
		changes = append(changes, change)
		_, version, _ := get(t, base, "a")
		want := int64(0)
		for _, ch := range changes {
			if !ch.ReadableAt.After(c.now()) {
				want = ch.Version
			}
		}
		if version != want || version < seen {
			t.Fatalf("read version %d after %d, want %d", version, seen, want)
		}
		seen, late = version, late || version < change.Version
		c.advance(300 * time.Millisecond)
	}
	if !late {
		t.Error("no change was ever late")
	}
	c.advance(lag)
	if _, version, _ := get(t, base, "a"); version != 40 || s.Truth()["a"] != 40 {
		t.Errorf("read %d in the end, truth %v", version, s.Truth())
	}
}

func TestSameSeedSameLags(t *testing.T) {
	a, _, _ := simulator(t, Config{MaxLag: time.Second, Seed: 1})
	b, _, _ := simulator(t, Config{MaxLag: time.Second, Seed: 1})
	for i := range 5 {
		account := fmt.Sprint(i)
		if x, y := a.Change(account), b.Change(account); x != y {
			t.Errorf("%+v and %+v", x, y)
		}
	}
}

func TestAccountsAndDeletion(t *testing.T) {
	s, _, base := simulator(t, Config{})
	if status, _, _ := get(t, base, "nobody"); status != http.StatusNotFound {
		t.Errorf("unknown account: %d", status)
	}
	for _, account := range []string{"plain", "a/b", "..", ".", "Ünï", "a b?c#d%", "nul\x00", "//"} {
		s.Change(account)
		if status, version, _ := get(t, base, account); status != http.StatusOK || version != 1 {
			t.Errorf("%q: status %d, version %d", account, status, version)
		}
	}
	s.Delete("plain")
	if status, _, _ := get(t, base, "plain"); status != http.StatusNotFound || s.Truth()["plain"] != 0 {
		t.Errorf("deleted account: %d, truth %v", status, s.Truth())
	}
	s.Change("plain")
	if status, version, _ := get(t, base, "plain"); status != http.StatusOK || version != 3 {
		t.Errorf("created again: %d, version %d", status, version)
	}
}

func TestCallsAreRecorded(t *testing.T) {
	s, c, base := simulator(t, Config{})
	s.Change("a")
	get(t, base, "a")
	c.advance(time.Second)
	get(t, base, "b")
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := []Call{{"a", start, 1, 200}, {"b", start.Add(time.Second), 0, 404}}
	calls := s.Calls()
	if len(calls) != 2 || calls[0] != want[0] || calls[1] != want[1] {
		t.Errorf("calls %+v, want %+v", calls, want)
	}
	if of := s.CallsOf("b"); len(of) != 1 || of[0] != want[1] {
		t.Errorf("calls of b: %+v", of)
	}
}

func TestFaultsThatAnswer(t *testing.T) {
	s, _, base := simulator(t, Config{})
	s.Change("a")
	s.Change("b")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, test := range []struct {
		fault  Fault
		status int
		valid  bool // the body is JSON
		bytes  int  // at least
	}{
		{Fault{Status: 429, RetryAfter: "7"}, 429, false, 0},
		{Fault{Status: 500}, 500, false, 0},
		{Fault{Kind: Garbage}, 200, false, 1},
		{Fault{Kind: HTML}, 200, false, 1},
		{Fault{Kind: Redirect}, 302, false, 0},
		{Fault{Kind: Huge}, 200, true, hugeBytes},
		{Fault{Delay: time.Millisecond}, 200, true, 1},
	} {
		remove := s.Inject("a", test.fault)
		response, err := client.Get(base + "/accounts/a")
		if err != nil {
			t.Fatalf("%+v: %v", test.fault, err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != test.status || json.Valid(body) != test.valid || len(body) < test.bytes {
			t.Errorf("%+v: %s, %d bytes, valid %t, %v", test.fault, response.Status, len(body), json.Valid(body), err)
		}
		if got := response.Header.Get("Retry-After"); got != test.fault.RetryAfter {
			t.Errorf("%+v: Retry-After %q", test.fault, got)
		}
		if status, _, _ := get(t, base, "b"); status != 200 {
			t.Errorf("%+v: the other account answers %d", test.fault, status)
		}
		remove()
		if status, _, _ := get(t, base, "a"); status != 200 {
			t.Errorf("%+v: %d after it was removed", test.fault, status)
		}
	}
}

func TestFaultsWithoutAnAnswer(t *testing.T) {
	s, _, base := simulator(t, Config{})
	s.Change("a")
	client := &http.Client{Timeout: 300 * time.Millisecond}
	for _, kind := range []Kind{Reset, Hang, Endless} {
		s.Inject("", Fault{Kind: kind, Times: 1})
		response, err := client.Get(base + "/accounts/a")
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		if err == nil {
			t.Errorf("%s: no error", kind)
		}
		if isReset := errors.Is(err, syscall.ECONNRESET); isReset != (kind == Reset) {
			t.Errorf("%s: %v", kind, err)
		}
		if status, _, _ := get(t, base, "a"); status != 200 {
			t.Errorf("%s: still in force after once", kind)
		}
	}
}

func TestFaultOfTheAccountComesFirst(t *testing.T) {
	s, _, base := simulator(t, Config{})
	s.Inject("", Fault{Status: 503})
	s.Inject("a", Fault{Status: 401, Times: 2})
	for i, want := range []int{401, 401, 503} {
		if status, _, _ := get(t, base, "a"); status != want {
			t.Errorf("call %d: %d, want %d", i, status, want)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	s, _, base := simulator(t, Config{MaxLag: time.Second})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			account := fmt.Sprint(i % 3)
			for range 20 {
				s.Change(account)
				remove := s.Inject(account, Fault{Delay: time.Microsecond})
				if response, err := http.Get(base + PathPrefix + account); err == nil {
					response.Body.Close()
				}
				remove()
				s.Truth()
				s.Calls()
			}
		})
	}
	wg.Wait()
	if n := len(s.Calls()); n != 160 {
		t.Errorf("%d calls recorded, want 160", n)
	}
}

// A handler that is kept from looking does not make calls look late, nor close
// together.
func TestArrivalIsTheKernels(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the kernel notes no arrivals here")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{})
	s.Change("a")
	server := &http.Server{Handler: s}
	go Serve(server, listener) //nolint:errcheck // it ends by Close
	t.Cleanup(func() { server.Close() })
	base := "http://" + listener.Addr().String()
	s.mu.Lock() // the handler waits here
	var sent [3]time.Time
	var wg sync.WaitGroup
	for i := range sent {
		time.Sleep(100 * time.Millisecond)
		sent[i] = time.Now()
		wg.Go(func() {
			if response, err := http.Get(base + PathPrefix + "a"); err == nil {
				response.Body.Close()
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	s.mu.Unlock()
	looked := time.Now()
	wg.Wait()
	calls := s.Calls()
	if len(calls) != len(sent) {
		t.Fatalf("%d calls", len(calls))
	}
	slices.SortFunc(calls, func(a, b Call) int { return a.Start.Compare(b.Start) })
	for i, call := range calls {
		if call.Start.Before(sent[i].Truncate(0)) || call.Start.After(looked) || i > 0 && call.Start.Sub(calls[i-1].Start) < 30*time.Millisecond {
			t.Errorf("call %d arrived at %s, sent at %s, looked at from %s on", i, call.Start, sent[i], looked)
		}
	}

	// A later request on the same connection has its own time.
	first, second := s.Calls()[0].Start, time.Time{}
	get(t, base, "a")
	second = s.CallsOf("a")[len(sent)].Start
	if !second.After(looked.Truncate(0)) || !second.After(first) {
		t.Errorf("%s, after %s", second, first)
	}
}
