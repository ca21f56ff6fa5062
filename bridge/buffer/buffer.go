package buffer

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Config bounds what the bridge holds.
type Config struct {
	Records        int          `env:"BUFFER_RECORDS" help:"Most changes held that are not yet durable in Temporal; fetching pauses there. Changes of one account that wait for the same signal count as one."`
	Bytes          config.Bytes `env:"BUFFER_BYTES" help:"Most memory held by changes that are not yet durable in Temporal, and by dead letters under way; one large record may exceed it."`
	MaxUncommitted int          `env:"MAX_UNCOMMITTED" help:"Most records admitted and not yet committed: what a crash redelivers."`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{Records: 4000, Bytes: 64 << 20, MaxUncommitted: 500_000}
}

// Validate returns every fault, joined.
func (c Config) Validate() error {
	var faults []error
	if c.Records < 1 {
		faults = append(faults, config.Fault{Name: "BUFFER_RECORDS", Value: strconv.Itoa(c.Records), Problem: "must be at least 1"})
	}
	if c.Bytes < 1<<16 {
		faults = append(faults, config.Fault{Name: "BUFFER_BYTES", Value: c.Bytes.String(), Problem: "must be at least 64KiB"})
	}
	if c.MaxUncommitted < 1 {
		faults = append(faults, config.Fault{Name: "MAX_UNCOMMITTED", Value: strconv.Itoa(c.MaxUncommitted), Problem: "must be at least 1"})
	}
	return errors.Join(faults...)
}

// Change is one admitted record about an account, without its payload.
type Change struct {
	Account  string
	Source   contract.Source
	Position contract.Position
	// Time is the change time by SETTLE_CLOCK, never later than its admission.
	Time time.Time
	// Version is how new the change is, if its record says so.
	Version contract.Version
	// Assignment is told once the change is covered.
	Assignment *ledger.Assignment
}

// changeBytes is what a change takes besides its key: itself, its place in a
// lane's queue and in the ledger, generously.
const changeBytes = 320

// Size returns the memory a change is accounted with, in bytes.
func (c Change) Size() int64 { return changeBytes + int64(len(c.Account)) }

// Buffer accounts for what was fetched and is not yet durable in Temporal. It
// holds no change itself. Safe for concurrent use.
type Buffer struct {
	cfg    Config
	ledger *ledger.Ledger
	wake   chan struct{}

	mu      sync.Mutex
	records int
	bytes   int64
}

// New returns an empty buffer that admits within cfg, given what l says is
// uncommitted.
func New(cfg Config, l *ledger.Ledger) *Buffer {
	// One token: the receiver looks at the whole state anyway.
	return &Buffer{cfg: cfg, ledger: l, wake: make(chan struct{}, 1)}
}

// Join gives back the place of a submitted change that will share its signal
// with another that holds one. It keeps its memory. So BUFFER_RECORDS counts
// signals that are still to be sent, and an account with thousands of changes a
// second does not fill it.
func (b *Buffer) Join(Change) { b.release(1, 0) }

// Release gives back the room of a submitted change. Whoever took the change
// calls it exactly once: when its first signal was accepted, or when it forgets
// the change because its assignment was dropped.
func (b *Buffer) Release(c Change) { b.release(1, c.Size()) }

// ReleaseJoined is Release for a change that has given its place back already.
func (b *Buffer) ReleaseJoined(c Change) { b.release(0, c.Size()) }

// Take takes room without asking: for a change whose room was released and
// that needs some again, on its way to the dead letters. What it exceeds the
// bounds by is missing to those who ask.
func (b *Buffer) Take(size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records++
	b.bytes += size
}

// ReleaseBytes gives back what [Gate.Admit] or [Buffer.Take] took for size bytes.
func (b *Buffer) ReleaseBytes(size int64) { b.release(1, size) }

func (b *Buffer) release(records int, size int64) {
	b.mu.Lock()
	b.records -= records
	b.bytes -= size
	roomy := b.roomy()
	b.mu.Unlock()
	if roomy {
		b.Wake()
	}
}

// Wake makes the receiver of Woken look for room again.
func (b *Buffer) Wake() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Woken has a token after room was given back.
func (b *Buffer) Woken() <-chan struct{} { return b.wake }

// Held returns how many places, and bytes, are taken.
func (b *Buffer) Held() (records int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.records, b.bytes
}
