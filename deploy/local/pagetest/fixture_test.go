package pagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/internal/process"
)

// timeout bounds one test: a first start of Chromium takes some seconds.
const timeout = 90 * time.Second

// tab is one page in a Chromium of its own.
type tab struct {
	t   *testing.T
	ctx context.Context

	console chan chromedp.ConsoleMessage // what the page wrote there; unread ones fit in
}

// open starts Chromium with nothing in its profile and opens an empty tab.
func open(t *testing.T) *tab {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no chromium, chromium-browser or google-chrome on the PATH: the status page is not tested; on Debian: apt-get install chromium")
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx,
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
	)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	b := &tab{t: t, ctx: ctx, console: make(chan chromedp.ConsoleMessage, 1000)}
	messages := chromedp.Console(ctx)
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		for message, err := range messages {
			if err != nil {
				return // the tab is closed
			}
			b.console <- message
		}
	}()
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // ends Chromium and waits, so that its profile can be removed
		cancel()
		<-listened
	})
	return b
}

// requireQuiet checks that the console has complained about nothing so far. A
// status server that is not there is no fault of the page's.
func (b *tab) requireQuiet() {
	b.t.Helper()
	const end = "all before this was seen"
	eval[bool](b, `console.debug("`+end+`"), true`)
	for {
		select {
		case message := <-b.console:
			switch {
			case message.Text == end:
				return
			case strings.Contains(message.Text, "ERR_CONNECTION_REFUSED"):
			case message.Type == chromedp.ConsoleError, message.Type == chromedp.ConsoleWarning, message.Type == chromedp.ConsoleException:
				require.Failf(b.t, "the console complained", "%s: %s (%s)", message.Type, message.Text, message.URL)
			}
		case <-b.ctx.Done():
			require.NoError(b.t, b.ctx.Err())
		}
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, actions...))
}

// eval returns what a JavaScript expression comes to.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return value
}

// await waits until a JavaScript expression is true.
func (b *tab) await(expression string) {
	b.t.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.Poll[bool](expression,
		chromedp.WithPollingTimeout(20*time.Second), chromedp.WithPollingInterval(50*time.Millisecond)))
	require.NoError(b.t, err, expression)
}

// shown returns the text of the element that shows the value of the key.
func (b *tab) shown(key string) string {
	b.t.Helper()
	return eval[string](b, `document.querySelector('[data-key="`+key+`"]')?.textContent ?? "nothing has this key"`)
}

// cells returns the texts of a table's row.
func (b *tab) cells(row string) []string {
	b.t.Helper()
	return eval[[]string](b, "[...document.querySelectorAll('"+row+" td')].map((cell) => cell.textContent)")
}

// screenshot keeps a picture of the whole page where SCREENSHOTS says.
func (b *tab) screenshot(name string) {
	b.t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644))
}

// server is a status server that can be stopped and started at its address.
type server struct {
	t       *testing.T
	address string
	stop    func()
}

func serve(t *testing.T, status process.Status) *server {
	t.Helper()
	port, err := stack.FreePort()
	require.NoError(t, err)
	s := &server{t: t, address: fmt.Sprintf("127.0.0.1:%d", port)}
	s.start(status)
	t.Cleanup(func() { s.stop() })
	return s
}

// start serves status until stop is called, which waits.
func (s *server) start(status process.Status) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- process.ServeStatus(ctx, s.address, status) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(s.t, <-ended)
	})
	require.Eventually(s.t, func() bool {
		response, err := http.Get("http://" + s.address + "/livez")
		if err == nil {
			response.Body.Close()
		}
		return err == nil
	}, 10*time.Second, 5*time.Millisecond)
}

// status reads /status as the page does.
func (s *server) status() map[string]any {
	s.t.Helper()
	response, err := http.Get("http://" + s.address + "/status")
	require.NoError(s.t, err)
	defer response.Body.Close()
	require.Equal(s.t, http.StatusOK, response.StatusCode)
	var status map[string]any
	require.NoError(s.t, json.NewDecoder(response.Body).Decode(&status))
	return status
}
