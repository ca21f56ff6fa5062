package manifests

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// metric is one that the code reports.
type metric struct {
	kinds []string // Count, Gauge, Timing
	tags  []string
}

var tag = regexp.MustCompile(`^([a-z_]+):`)

// reported finds the metrics in the source of both processes: the calls of
// Count, Gauge and Timing, and of the workflow's Counter, with a literal name.
// A metric has the tags that stand in the same function.
func reported(t *testing.T) map[string]*metric {
	t.Helper()
	found := map[string]*metric{}
	for _, dir := range []string{"activities", "bridge", "worker", "workflows", "internal"} {
		err := filepath.WalkDir(filepath.Join(root(t), dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			for _, declaration := range file.Decls {
				scan(declaration, found)
			}
			return nil
		})
		require.NoError(t, err)
	}
	require.Contains(t, found, "sync.calls", "the search works")
	return found
}

func scan(function ast.Node, found map[string]*metric) {
	var tags []string
	var here []*metric
	ast.Inspect(function, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil && tag.MatchString(text) {
				tags = append(tags, tag.FindStringSubmatch(text)[1])
			}
		}
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Count", "Gauge", "Timing", "Counter"}, selector.Sel.Name) {
			return true
		}
		if literal, ok := call.Args[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
			name, _ := strconv.Unquote(literal.Value)
			if found[name] == nil {
				found[name] = &metric{}
			}
			found[name].kinds = append(found[name].kinds, strings.TrimSuffix(selector.Sel.Name, "er"))
			here = append(here, found[name])
		}
		return true
	})
	for _, m := range here {
		m.tags = append(m.tags, tags...)
	}
}

// checkQuery holds a query's metrics, and how it takes them, against the code.
func checkQuery(t *testing.T, query string, metrics map[string]*metric) {
	t.Helper()
	uses := Uses(query)
	require.NotEmpty(t, uses, query)
	require.Len(t, uses, strings.Count(query, "quiesce."), "each metric is understood: %s", query)
	for _, u := range uses {
		m := metrics[u.Metric]
		require.NotNil(t, m, "nothing reports %s: %s", u.Metric, query)
		for _, tag := range u.Tags {
			require.Contains(t, append([]string{"pipeline", "version"}, m.tags...), tag, "%s has no such tag: %s", u.Metric, query)
		}
		switch m.kinds[0] {
		case "Count":
			require.True(t, u.Count, "%s is a count: %s", u.Metric, query)
			require.Equal(t, "sum", u.Aggregator, query)
		case "Timing":
			require.Regexp(t, `^p\d+$`, u.Aggregator, query)
		default:
			require.False(t, u.Count, query)
			require.Contains(t, []string{"max", "min", "sum", "avg"}, u.Aggregator, query)
		}
	}
}

func TestMonitorsWatchWhatIsReported(t *testing.T) {
	monitors, err := Monitors(root(t))
	require.NoError(t, err)
	metrics := reported(t)
	watched := map[string]bool{}
	for _, m := range monitors {
		require.Equal(t, "query alert", m.Type)
		checkQuery(t, m.Query, metrics)
		for _, u := range Uses(m.Query) {
			watched[u.Metric] = true
		}
		limit := regexp.MustCompile(` [<>] ([0-9.]+)$`).FindStringSubmatch(m.Query)
		require.NotNil(t, limit, m.Query)
		critical, err := strconv.ParseFloat(limit[1], 64)
		require.NoError(t, err)
		require.Equal(t, critical, *m.Options.Thresholds.Critical, "the threshold of the query: %s", m.Query)
		for _, placeholder := range regexp.MustCompile(`\{\{(\w+)\.name\}\}`).FindAllStringSubmatch(m.Name, -1) {
			require.Regexp(t, `by \{[^}]*\b`+placeholder[1]+`\b`, m.Query, "%s is grouped by that", m.Name)
		}
	}
	for _, name := range []string{
		"bridge.oldest_uncommitted_seconds", "bridge.paused_partitions", "parked.accounts", "upstream.breaker",
		"budget.used", "budget.limit", "bridge.lease_headroom_seconds",
	} {
		require.True(t, watched[name], "nobody watches %s", name)
	}
}

// TestOverdueIsBeyondTheLease: what the binaries allow by default is no alarm.
func TestOverdueIsBeyondTheLease(t *testing.T) {
	binary, err := stack.BuildBinary(t.Context(), root(t), "bridge")
	require.NoError(t, err)
	output := func(args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Env = []string{"PIPELINE=p", "KAFKA_BROKERS=b:1", "KAFKA_TOPICS=t", "DEAD_LETTER_TOPIC=d"}
		text, err := cmd.Output()
		require.NoError(t, err)
		return text
	}
	var leases struct {
		Leases []struct {
			Name  string
			Lease float64 `json:"lease_seconds"`
		}
	}
	require.NoError(t, json.Unmarshal(output("lease", "--json"), &leases))
	limits := map[string]float64{}
	for _, l := range leases.Leases {
		limits[l.Name] = l.Lease
	}
	require.Positive(t, limits["account"])
	delay, err := time.ParseDuration(setting(t, string(output("config")), "SETTLE_DELAY"))
	require.NoError(t, err)
	monitors, err := Monitors(root(t))
	require.NoError(t, err)
	for _, m := range monitors {
		critical := *m.Options.Thresholds.Critical
		switch Uses(m.Query)[0].Metric {
		case "bridge.oldest_uncommitted_seconds":
			least := delay.Seconds() + limits["account"]
			require.GreaterOrEqual(t, critical, least)
			require.Less(t, critical, least+10, "and not much later")
		case "bridge.lease_headroom_seconds":
			require.Less(t, critical, limits["loop"]/2)
		}
	}
}

func TestDashboardShowsWhatIsReported(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "deploy", "datadog", "dashboard.json"))
	require.NoError(t, err)
	var dashboard struct {
		TemplateVariables []struct{ Name, Prefix string } `json:"template_variables"`
		Widgets           []struct {
			Definition struct {
				Title    string
				Requests []struct {
					Q        string
					Metadata []struct{ Expression string }
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.Equal(t, "pipeline", dashboard.TemplateVariables[0].Prefix)
	metrics := reported(t)
	require.NotEmpty(t, dashboard.Widgets)
	for _, w := range dashboard.Widgets {
		require.NotEmpty(t, w.Definition.Requests, w.Definition.Title)
		for _, r := range w.Definition.Requests {
			checkQuery(t, r.Q, metrics)
			for _, alias := range r.Metadata {
				require.Equal(t, r.Q, alias.Expression, "the alias is of this query")
			}
		}
	}
}
