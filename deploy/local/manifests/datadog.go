package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Monitor is a Datadog monitor, as far as ours use its fields; others are an
// error.
type Monitor struct {
	Name, Type, Query, Message string
	Tags                       []string
	Priority                   int
	Options                    struct {
		Thresholds struct{ Critical *float64 }
		Include    bool `json:"include_tags"`
		NoData     bool `json:"notify_no_data"`
		NoDataFor  int  `json:"no_data_timeframe"`
		Renotify   int  `json:"renotify_interval"`
	}
}

// Monitors reads deploy/datadog/monitors.json.
func Monitors(root string) (monitors []Monitor, err error) {
	file := filepath.Join(root, "deploy", "datadog", "monitors.json")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&monitors); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return monitors, nil
}

// Use is a metric in a query.
type Use struct {
	Aggregator string // max, p99
	Metric     string // without "quiesce."
	Tags       []string
	Count      bool // it is taken as a count or a rate
}

var use = regexp.MustCompile(`(\w+):quiesce\.([a-z_.]+)\{([^}]*)\}(?: by \{([^}]*)\})?(\.as_(?:count|rate)\(\))?`)

// Uses returns the metrics in a query.
func Uses(query string) (uses []Use) {
	for _, m := range use.FindAllStringSubmatch(query, -1) {
		u := Use{Aggregator: m[1], Metric: m[2], Count: m[5] != ""}
		for _, filter := range strings.Split(m[3], ",") {
			if tag, _, is := strings.Cut(strings.TrimPrefix(filter, "$"), ":"); is || strings.HasPrefix(filter, "$") {
				u.Tags = append(u.Tags, tag)
			}
		}
		if m[4] != "" {
			u.Tags = append(u.Tags, strings.Split(m[4], ",")...)
		}
		uses = append(uses, u)
	}
	return uses
}
