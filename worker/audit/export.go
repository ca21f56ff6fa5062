package audit

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Formats of an export.
const (
	FormatJSONL = "jsonl"
	FormatCSV   = "csv"
)

// csvColumns is the header of the CSV form; columns are only ever appended.
var csvColumns = [...]string{
	"account", "synced_at", "sync_id", "attempt", "called_at", "outcome", "upstream_status", "upstream_millis",
	"changes", "oldest_change_at", "newest_change_at", "payload_hash", "replay_id", "sources",
	"tries", "operator", "reason", "version",
}

// Export writes every sync of the window to w, in the order of [Log.Each]: one
// JSON object per line, or CSV with a header line and sources as JSON. It
// returns how many it wrote.
func Export(ctx context.Context, log *Log, window Window, format string, w io.Writer) (int, error) {
	out := bufio.NewWriter(w)
	var write func(Sync) error
	finish := func() error { return nil }
	switch format {
	case FormatJSONL:
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		write = func(s Sync) error { return encoder.Encode(s) }
	case FormatCSV:
		table := csv.NewWriter(out)
		if err := table.Write(csvColumns[:]); err != nil {
			return 0, fmt.Errorf("export: %w", err)
		}
		write = func(s Sync) error { return writeCSV(table, s) }
		finish = func() error { table.Flush(); return table.Error() }
	default:
		return 0, fmt.Errorf("--format %q: must be %s or %s", format, FormatJSONL, FormatCSV)
	}
	n := 0
	err := log.Each(ctx, window, func(s Sync) error { n++; return write(s) })
	if err == nil {
		err = finish()
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return n, fmt.Errorf("export: %w", err)
	}
	return n, nil
}

func writeCSV(table *csv.Writer, s Sync) error {
	sources, err := json.Marshal(s.Sources)
	if err != nil {
		return err
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return table.Write([]string{
		s.Account, instant(s.SyncedAt), s.SyncID, number(s.Attempt), instant(s.CalledAt), s.Outcome, number(s.UpstreamStatus), number(s.UpstreamMillis),
		number(s.Changes), instant(s.OldestAt), instant(s.NewestAt), s.PayloadHash, s.ReplayID, string(sources),
		number(s.Tries), s.Operator, s.Reason, s.Version.String(),
	})
}

// instant writes a time as RFC 3339 with what fractions it has, in UTC; "" for
// none.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
