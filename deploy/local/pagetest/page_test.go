package pagetest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/quiesce-io/quiesce/activities/health"
	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/bridge/dispatch"
	bridge "github.com/quiesce-io/quiesce/bridge/service"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/worker/parked"
	worker "github.com/quiesce-io/quiesce/worker/service"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

func healthy() error { return nil }

// number writes n as the page does.
func number(n any) string {
	return message.NewPrinter(language.English).Sprint(n)
}

// bridgeStatus is a bridge with one partition of each kind.
func bridgeStatus() (process.Status, *telemetry.Tally) {
	tally := telemetry.NewTally(telemetry.Discard)
	tally.Count("bridge.records", 12_345, "topic:account-changes", "outcome:change")
	tally.Count("bridge.records", 7, "topic:account-changes", "outcome:dead_letter")
	tally.Count("bridge.signals", 6_789, "kind:signal")
	tally.Count("bridge.dead_letters", 7, "outcome:accepted")
	tally.Timing("bridge.signal_latency", 12*time.Millisecond)
	oldest := time.Now().Add(-42 * time.Second)
	s := bridge.Status{
		Pipeline: "accounts", Version: "v1.2.3", WatchedRuns: 321,
		Status: consumer.Status{
			Group: "accounts", Lag: 4_446, Uncommitted: 9_001, OldestUncommitted: oldest,
			BufferRecords: 3_400, BufferBytes: 3 << 20, PausedPartitions: 1, StoppedPartitions: 1,
			Partitions: []consumer.PartitionStatus{
				{Topic: "account-changes", Partition: 0, Watermark: 1_234_567, EndOffset: 1_234_890, Lag: 323, Uncommitted: 320, OldestUncommitted: oldest},
				{Topic: "account-changes", Partition: 1, Watermark: 88, EndOffset: 4_211, Lag: 4_123, Uncommitted: 4_000, OldestUncommitted: oldest, Paused: true},
				{Topic: "account-changes", Partition: 2, Watermark: 17, EndOffset: 17, Stopped: "<b>offset 17 is out of range</b>; resume with kafka-consumer-groups"},
				{Topic: "account-changes", Partition: 3, Watermark: 0, EndOffset: -1},
			},
		},
		Dispatch: dispatch.Status{Lanes: 64, Busy: 12, Accounts: 77},
		Oldest:   bridge.Oldest{Seconds: 42, Since: oldest, Cause: bridge.CauseWorkers, Detail: "None has polled accounts for 80 s"},
		Bounds:   bridge.Bounds{BufferRecords: 4_000, BufferBytes: 64 << 20, MaxUncommitted: 500_000, Executors: 64, Watchers: 128},
	}
	outside := process.NewDependencies(slog.New(slog.DiscardHandler),
		process.Dependency{Name: "temporal", At: "TEMPORAL_ADDRESS=temporal:7233", Ask: func(context.Context) error { return nil }},
		process.Dependency{Name: "kafka", At: "KAFKA_BROKERS=kafka:9092", OutSince: time.Now().Add(-10 * time.Second), Error: "connection refused"})
	return process.Status{Metrics: tally, Dependencies: outside, Live: healthy, Ready: healthy, Snapshot: func() any {
		now := s
		now.OldestUncommittedSeconds = time.Since(oldest).Seconds()
		return now
	}}, tally
}

func workerStatus(breaker *atomic.Bool, share *atomic.Pointer[contract.Share]) (process.Status, *telemetry.Tally) {
	share.Store(&contract.Share{Calls: 25, Limit: 50, Leased: 40})
	tally := telemetry.NewTally(telemetry.Discard)
	tally.Count("sync.changes", 1_600)
	tally.Count("sync.calls", 1_000)
	tally.Count("budget.used", 1_010)
	tally.Gauge("budget.limit", 50)
	tally.Gauge("budget.leased", 25)
	tally.Count("parked.entered", 9) // some have recovered, others were parked elsewhere
	tally.Count("sync.skipped", 5)
	for i := range 100 {
		tally.Timing("sync.staleness", time.Duration(30+i/10)*time.Second)
	}
	return process.Status{Metrics: tally, Live: healthy, Ready: healthy, Snapshot: func() any {
		s := worker.Status{
			Pipeline: "accounts", Version: "v1.2.3", TaskQueue: "accounts", Slots: 100, BudgetRPS: 80,
			Share:  *share.Load(),
			Parked: parked.Counted{Accounts: 3, ReadAt: time.Now().Add(-4 * time.Second)},
		}
		if breaker.Load() {
			s.Breaker = health.State{Open: true, Since: time.Now(), Cause: "401 for everybody"}
		}
		return s
	}}, tally
}

func TestBridgePageShowsWhatStatusSays(t *testing.T) {
	status, tally := bridgeStatus()
	server := serve(t, status)
	b := open(t)
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate("http://"+server.address+"/"))
	b.await(`document.getElementById("connection").dataset.state === "live"`)

	said := server.status()
	counts := said["metrics"].(map[string]any)["counts"].(map[string]any)
	bounds := said["bounds"].(map[string]any)
	require.Equal(t, number(int(counts["bridge.records{change}"].(float64))), b.shown("changes"))
	require.Equal(t, number(int(counts["bridge.signals"].(float64))), b.shown("metrics.counts.bridge.signals"))
	for _, key := range []string{"uncommitted", "lag", "watched_runs", "buffer_records"} {
		require.Equal(t, number(int(said[key].(float64))), b.shown(key), key)
	}
	require.Equal(t, "3 MiB", b.shown("buffer_bytes"))
	require.Contains(t, eval[string](b, `document.getElementById("meters").textContent`), "9,001 of "+number(int(bounds["max_uncommitted"].(float64))))
	require.Contains(t, b.shown("oldest_uncommitted_seconds"), " s")

	rows := said["partitions"].([]any)
	require.Len(t, rows, 4)
	for _, row := range rows {
		p := row.(map[string]any)
		cells := b.cells(fmt.Sprintf(`tr[data-partition="%s/%v"]`, p["topic"], p["partition"]))
		end := number(int(p["end_offset"].(float64)))
		if end == "-1" {
			end = "–"
		}
		require.Equal(t, []string{
			number(int(p["partition"].(float64))), []string{"reading", "paused", "stopped", "reading"}[int(p["partition"].(float64))],
			number(int(p["watermark"].(float64))), end, number(int(p["lag"].(float64))), number(int(p["uncommitted"].(float64))),
		}, cells[:6])
		_, old := p["oldest_uncommitted"]
		require.Equal(t, old, strings.HasSuffix(cells[6], " s"), "%q is the age of the oldest", cells[6])
	}
	require.Equal(t, []string{"temporal", "answers", "TEMPORAL_ADDRESS=temporal:7233"}, b.cells(`tr[data-dependency="temporal"]`))
	require.Regexp(t, `^out for 1[0-9]\.[0-9] s$`, b.cells(`tr[data-dependency="kafka"]`)[1])
	require.Contains(t, eval[string](b, `document.getElementById("notices").textContent`), "kafka is out since")
	require.Contains(t, eval[string](b, `document.getElementById("notices").textContent`), "no worker asks for work. None has polled accounts for 80 s")
	require.Contains(t, eval[string](b, `document.getElementById("notices").textContent`), "<b>offset 17 is out of range</b>", "as text, never as markup")

	// The charts follow the counters.
	for range 3 {
		tally.Count("bridge.records", 40, "outcome:change")
		tally.Count("bridge.signals", 10)
		want := number(int(server.status()["metrics"].(map[string]any)["counts"].(map[string]any)["bridge.records{change}"].(float64)))
		b.await(fmt.Sprintf(`document.querySelector('[data-key="changes"]').textContent === %q`, want))
	}
	require.Regexp(t, `changes [1-9][0-9.]*/s`, eval[string](b, `document.querySelector(".legend").textContent`))
	require.Greater(t, eval[int](b, `document.querySelector(".line.series0").getAttribute("d").split("L").length`), 1, "a line has points")
	b.screenshot("bridge-light")
	b.requireQuiet()
}

func TestWorkerPageShowsWhatStatusSays(t *testing.T) {
	var breaker atomic.Bool
	var share atomic.Pointer[contract.Share]
	status, tally := workerStatus(&breaker, &share)
	server := serve(t, status)
	b := open(t)
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
	})
	require.NoError(t, err)
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate("http://"+server.address+"/"))
	b.await(`document.getElementById("connection").dataset.state === "live"`)
	require.Equal(t, "1,600", b.shown("metrics.counts.sync.changes"))
	require.Equal(t, "1,000", b.shown("metrics.counts.sync.calls"))
	require.Equal(t, "37.5 %", b.shown("saved"))
	require.Equal(t, "34.0 s", b.shown("staleness"))
	require.Equal(t, "3", b.shown("parked.accounts"), "those of the pipeline, not what this process parked")
	require.Regexp(t, "read [4-9]\u00a0s ago", eval[string](b, `document.querySelector('[data-key="parked.accounts"]').parentElement.textContent`))
	require.Equal(t, "40", b.shown("share.leased"))
	require.Equal(t, "25", b.shown("metrics.gauges.budget.leased"))
	require.Contains(t, eval[string](b, `document.getElementById("meters").textContent`), "25 of 50")
	require.Equal(t, "1,010", eval[string](b, `document.querySelector('[data-counter="budget.used"] td:last-child').textContent`))
	require.Equal(t, "answers", b.shown("breaker.open"))
	require.True(t, eval[bool](b, `document.getElementById("partitions").hidden`), "a worker has no partitions")
	require.Equal(t, "rgb(15, 18, 24)", eval[string](b, `getComputedStyle(document.body).backgroundColor`), "dark where the system is")

	notices := `document.getElementById("notices").textContent`
	require.Empty(t, eval[string](b, notices))
	until := time.Now().Add(40 * time.Second)
	share.Store(&contract.Share{PausedUntil: until})
	tally.Gauge("budget.limit", 0)
	tally.Gauge("budget.leased", 0)
	b.await(fmt.Sprintf(notices+`.includes("Upstream asked for no calls until " + new Date(%d).toLocaleTimeString("en-GB"))`, until.UnixMilli()))
	require.NotContains(t, eval[string](b, notices), "budget set", "it is upstream's pause, not an operator's")
	share.Store(&contract.Share{PausedUntil: until, Unanswered: time.Now().Add(-90 * time.Second)})
	b.await(`/No answer from the budget for 1\smin\s[34]\d\ss: calls have stopped/.test(` + notices + `)`)
	require.NotContains(t, eval[string](b, notices), "Upstream asked", "what was last heard explains nothing any more")
	require.NotContains(t, eval[string](b, notices), "budget set")
	require.Equal(t, "0", b.shown("metrics.gauges.budget.leased"))
	share.Store(&contract.Share{})
	b.await(notices + `.includes("calls are paused until somebody runs worker budget set")`)
	breaker.Store(true) // then nobody has paused anything
	b.await("!" + notices + `.includes("paused")`)
	b.await(`document.querySelector('[data-key="breaker.open"]').textContent === "out"`)
	require.Contains(t, eval[string](b, notices), "401 for everybody")
	b.screenshot("worker-dark")
	b.requireQuiet()
}

func TestPageSurvivesARestart(t *testing.T) {
	status, tally := bridgeStatus()
	server := serve(t, status)
	b := open(t)
	b.do(chromedp.Navigate("http://" + server.address + "/"))
	b.await(`document.getElementById("connection").dataset.state === "live"`)
	tally.Count("bridge.records", 1, "outcome:change")
	b.await(`document.querySelector('[data-key="changes"]').textContent === "12,346"`)
	server.stop()
	b.await(`document.getElementById("connection").dataset.state === "lost"`)
	require.Equal(t, "12,346", b.shown("changes"), "what was known stays")

	status, again := bridgeStatus()
	server.start(status)
	b.await(`document.getElementById("connection").dataset.state === "live"`)
	require.Equal(t, "12,345", b.shown("changes"))
	b.await(`document.querySelector(".restart") !== null`) // marked in the charts
	again.Count("bridge.records", 5, "outcome:change")
	b.await(`document.querySelector('[data-key="changes"]').textContent === "12,350"`)
	require.NotContains(t, eval[string](b, `document.querySelector(".legend").textContent`), "−", "counters that begin anew are no negative rate")
	b.requireQuiet()
}

func TestPageFitsAPhone(t *testing.T) {
	status, tally := bridgeStatus()
	server := serve(t, status)
	b := open(t)
	b.do(chromedp.EmulateViewport(375, 812, chromedp.EmulateMobile), chromedp.Navigate("http://"+server.address+"/"))
	b.await(`document.getElementById("connection").dataset.state === "live"`)
	for n := range 3 { // time passes, so that there is something in the charts
		tally.Count("bridge.signals", 10)
		b.await(fmt.Sprintf(`document.querySelector('[data-key="metrics.counts.bridge.signals"]').textContent === %q`, number(6_799+10*n)))
	}
	require.LessOrEqual(t, eval[int](b, `document.documentElement.scrollWidth`), 375, "nothing sticks out")
	small := eval[[]string](b, `[...document.querySelectorAll("main *")].filter((e) => e.childElementCount === 0 && e.textContent.trim() && parseFloat(getComputedStyle(e).fontSize) < 11).map((e) => e.textContent)`)
	require.Empty(t, small, "too small to read: %s", strings.Join(small, ", "))
	for _, column := range []int{2, 3, 5, 7} { // state, watermark, lag, oldest
		require.LessOrEqual(t, eval[float64](b, fmt.Sprintf(`document.querySelector("#partitions tbody tr:nth-child(2) td:nth-child(%d)").getBoundingClientRect().right`, column)), 375.0, "column %d is seen", column)
		require.True(t, eval[bool](b, fmt.Sprintf(`document.querySelector("#partitions tbody tr:nth-child(2) td:nth-child(%d)").checkVisibility()`, column)), "column %d is seen", column)
	}
	b.screenshot("bridge-phone")
	b.requireQuiet()
}
