package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/check"
)

// viewInterval is how often the view is shown a new state.
const viewInterval = time.Second

// plainInterval is how often a line is printed where nothing can be redrawn.
const plainInterval = 5 * time.Second

// view shows the state of the run: redrawn in place on a terminal, otherwise as
// a line now and then.
type view struct {
	out      io.Writer
	terminal bool
	start    time.Time
	now      func() time.Time

	// hints are further rows for a terminal, of what may be done now; may be nil.
	hints func(live) [][2]string

	lines    int // drawn, to be drawn over
	latest   live
	latestAt time.Time // when that was; zero before the first
	printed  time.Time // when a line was last printed
	dirty    bool      // latest has not been printed
}

func newView(out io.Writer) *view {
	return &view{out: out, terminal: isTerminal(out), start: time.Now(), now: time.Now}
}

// isTerminal reports whether text written to w can be drawn over.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == "" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// show shows l.
func (v *view) show(l live) {
	now := v.now()
	changed := l.draining != v.latest.draining
	v.latest, v.latestAt, v.dirty = l, now, true
	if v.terminal {
		v.draw(now)
		return
	}
	if v.printed.IsZero() || changed || now.Sub(v.printed) > plainInterval-viewInterval/2 {
		v.print(now)
	}
}

// note prints a line or more that stays, above what is redrawn.
func (v *view) note(format string, args ...any) {
	if v.lines > 0 {
		fmt.Fprintf(v.out, "\x1b[%dF\x1b[J", v.lines)
		v.lines = 0
	}
	fmt.Fprintf(v.out, format+"\n", args...)
	if v.terminal && !v.latestAt.IsZero() {
		v.draw(v.latestAt)
	}
}

// end leaves the latest state on the screen.
func (v *view) end() {
	if !v.terminal && v.dirty {
		v.print(v.now())
	}
}

func (v *view) print(now time.Time) {
	v.printed, v.dirty = now, false
	l := v.latest
	fmt.Fprintf(v.out, "%4.0fs  changes %d  calls %d  saved %s  pending %d  oldest uncommitted %.1fs  watermark lag %d  stale %d  lost %d%s\n",
		now.Sub(v.start).Seconds(), l.changes, l.calls, savedSoFar(l), l.pending,
		l.oldest.Seconds(), l.lag, l.stale, l.lost, phase(l))
}

// savedSoFar is the share of the changes covered so far that took no call: what
// still waits is neither saved nor spent.
func savedSoFar(l live) string {
	if l.covered == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f%%", 100*check.SavedRatio(l.covered, l.calls))
}

func phase(l live) string {
	if l.draining {
		return "  (draining)"
	}
	return ""
}

func (v *view) draw(now time.Time) {
	l := v.latest
	rows := [][2]string{
		{"time", fmt.Sprintf("%.0fs%s", now.Sub(v.start).Seconds(), phase(l))},
		{"changes", fmt.Sprint(l.changes)},
		{"calls", fmt.Sprint(l.calls)},
		{"saved", fmt.Sprintf("%-6s  %s", savedSoFar(l), bar(check.SavedRatio(l.covered, l.calls)))},
		{"pending", fmt.Sprint(l.pending)},
		{"oldest uncommitted", fmt.Sprintf("%.1fs", l.oldest.Seconds())},
		{"watermark lag", fmt.Sprint(l.lag)},
		{"stale", alarm(l.stale)},
		{"lost", alarm(l.lost)},
	}
	if v.hints != nil && !l.draining {
		rows = append(rows, v.hints(l)...)
	}
	var text strings.Builder
	if v.lines > 0 {
		fmt.Fprintf(&text, "\x1b[%dF", v.lines)
	}
	// What is below may be of more rows than these. A line must not wrap, or the
	// next drawing would begin too low.
	text.WriteString("\x1b[J\x1b[?7l")
	for _, row := range rows {
		fmt.Fprintf(&text, "  %-20s %s\n", row[0], row[1])
	}
	text.WriteString("\x1b[?7h")
	v.lines = len(rows)
	io.WriteString(v.out, text.String()) //nolint:errcheck
}

// bar draws a share from 0 to 1.
func bar(share float64) string {
	const width = 20
	full := min(width, max(0, int(share*width+0.5)))
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

// alarm is a count that should be 0: green if it is, else red.
func alarm(n int) string {
	if n == 0 {
		return "\x1b[32m0\x1b[0m"
	}
	return fmt.Sprintf("\x1b[31m%d\x1b[0m", n)
}
