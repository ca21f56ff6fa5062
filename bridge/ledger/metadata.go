package ledger

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// MaxMetadataBytes is what brokers accept (offset.metadata.max.bytes).
const MaxMetadataBytes = 4096

// metadataPrefix begins every metadata string of ours; the digit is the version.
const metadataPrefix = "quiesce1:"

// maxRuns is more than fits: a run takes two bytes at least.
const maxRuns = MaxMetadataBytes / 2

// ErrForeign is returned for metadata that is not ours, or not intact.
var ErrForeign = errors.New("commit metadata is not Quiesce's")

// Metadata is what travels with a committed offset:
//
//	"quiesce1:" base64url( topic ID | uvarint watermark | uvarint partitions | runs )
//	run: uvarint gap<<1|e | [e: varint epoch delta] | uvarint length-1
//
// where gap counts the offsets between the end of the run before (at first the
// watermark) and the run, e says that the leader epoch differs from the run
// before (at first -1).
type Metadata struct {
	TopicID contract.TopicID
	// Watermark is the committed offset that the metadata was written for.
	Watermark int64
	// Partitions is how many partitions the topic had when the group first
	// started on it; 0 if unknown. A partition beyond it appeared later.
	Partitions int32
	// Runs are done, ascending, beyond the watermark.
	Runs []Run
}

// Run is a span of offsets whose records, as far as there are any, are done.
type Run struct {
	First, Last int64 // inclusive
	Epoch       int32
}

// Encode returns the text form, at most MaxMetadataBytes long: runs that do not
// fit are left out, the farthest first.
func (m Metadata) Encode() string {
	limit := base64.RawURLEncoding.DecodedLen(MaxMetadataBytes - len(metadataPrefix))
	raw := append(make([]byte, 0, 64), m.TopicID[:]...)
	raw = binary.AppendUvarint(raw, uint64(m.Watermark))
	raw = binary.AppendUvarint(raw, uint64(m.Partitions))
	next, epoch := m.Watermark, int32(-1)
	for _, r := range m.Runs {
		size := len(raw)
		gap := uint64(r.First-next) << 1
		if r.Epoch != epoch {
			raw = binary.AppendUvarint(raw, gap|1)
			raw = binary.AppendVarint(raw, int64(r.Epoch)-int64(epoch))
		} else {
			raw = binary.AppendUvarint(raw, gap)
		}
		raw = binary.AppendUvarint(raw, uint64(r.Last-r.First))
		if len(raw) > limit {
			raw = raw[:size]
			break
		}
		next, epoch = r.Last+1, r.Epoch
	}
	return metadataPrefix + base64.RawURLEncoding.EncodeToString(raw)
}

// Decode reads what Encode wrote; anything else is ErrForeign.
func Decode(text string) (Metadata, error) {
	encoded, ours := strings.CutPrefix(text, metadataPrefix)
	if !ours || len(text) > MaxMetadataBytes {
		return Metadata{}, ErrForeign
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return Metadata{}, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	var m Metadata
	if len(raw) < len(m.TopicID) {
		return Metadata{}, ErrForeign
	}
	copy(m.TopicID[:], raw)
	r := reader{raw: raw[len(m.TopicID):]}
	m.Watermark = int64(r.uvarint(math.MaxInt64))
	m.Partitions = int32(r.uvarint(math.MaxInt32))
	next, epoch := m.Watermark, int64(-1)
	for len(r.raw) > 0 && !r.bad {
		gap := r.uvarint(math.MaxUint64)
		if gap&1 == 1 {
			epoch += r.varint()
		}
		length := r.uvarint(math.MaxInt64)
		// Neither sum may overflow, or the run would end before it begins.
		if gap>>1 > uint64(math.MaxInt64-next) || epoch < -1 || epoch > math.MaxInt32 {
			return Metadata{}, ErrForeign
		}
		first := next + int64(gap>>1)
		if length >= uint64(math.MaxInt64-first) {
			return Metadata{}, ErrForeign
		}
		m.Runs = append(m.Runs, Run{First: first, Last: first + int64(length), Epoch: int32(epoch)})
		next = first + int64(length) + 1
	}
	if r.bad {
		return Metadata{}, ErrForeign
	}
	return m, nil
}

// reader takes numbers off raw; bad is set once one is missing or too large.
type reader struct {
	raw []byte
	bad bool
}

func (r *reader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.raw)
	if n <= 0 || v > limit {
		r.bad = true
		return 0
	}
	r.raw = r.raw[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.raw)
	if n <= 0 || v > math.MaxInt32+1 || v < -math.MaxInt32-1 {
		r.bad = true
		return 0
	}
	r.raw = r.raw[n:]
	return v
}
