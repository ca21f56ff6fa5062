package contract_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

func version(text string) contract.Version {
	v, err := contract.ParseVersion(text)
	if err != nil {
		panic(err)
	}
	return v
}

func versioned(r contract.Range, text string) contract.Range {
	r.Version = version(text)
	return r
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		older bool
	}{
		{"1", "2", true}, {"9", "10", true}, {"2", "2", false}, {"3", "2", false}, {"-1", "0", true},
		{"9223372036854775806", "9223372036854775807", true},
		{"2026-11-30T12:00:00Z", "2026-11-30T12:00:00.000000001Z", true},
		{"2026-11-30T12:00:00+01:00", "2026-11-30T12:00:00Z", true},
		{"2026-11-30T13:00:00+01:00", "2026-11-30T12:00:00Z", false},
		{"1", "2026-11-30T12:00:00Z", false}, {"2026-11-30T12:00:00Z", "1", false}, // nothing is known
	} {
		require.Equal(t, c.older, version(c.a).OlderThan(version(c.b)), "%s < %s", c.a, c.b)
		require.False(t, contract.Version{}.OlderThan(version(c.b)))
		require.False(t, version(c.a).OlderThan(contract.Version{}))
	}
	for _, text := range []string{"", "v1", "1.5", "9223372036854775808", "yesterday", "2026-11-30", "1500-01-01T00:00:00Z"} {
		_, err := contract.ParseVersion(text)
		require.Error(t, err, text)
	}
	for _, text := range []string{"42", "-7", "2026-11-30T12:00:00.5Z"} {
		raw, err := json.Marshal(version(text))
		require.NoError(t, err)
		require.Equal(t, `"`+text+`"`, string(raw))
		var back contract.Version
		require.NoError(t, json.Unmarshal(raw, &back))
		require.Equal(t, version(text), back)
	}
}

func TestMergedRangesKeepTheGreatestVersion(t *testing.T) {
	merged := contract.Coalesce([]contract.Range{
		versioned(changes(1, 1, 0, 0), "7"), versioned(changes(2, 2, 1, 1), "9"), changes(3, 3, 2, 2),
	}, at(30), settings)
	require.Len(t, merged, 1)
	require.Equal(t, version("9"), merged[0].Version)
}

func TestVersionsOnlyEverHoldBack(t *testing.T) {
	const settle = 20 * time.Second
	old, recent, none := versioned(changes(1, 1, 0, 0), "7"), versioned(changes(2, 2, 1, 1), "9"), changes(3, 3, 2, 2)
	late := versioned(changes(4, 4, 29, 29), "1")
	covered, pending := contract.SplitAt([]contract.Range{old, recent, none, late}, at(30), version("8"), settle, nil)
	require.Equal(t, []contract.Range{old, none}, covered)
	require.Equal(t, []contract.Range{recent, late}, pending, "older than its change; not settled yet, whatever its version")
	require.Equal(t, version("9"), contract.Unsettled([]contract.Range{old, recent, none}, version("8")))
	require.True(t, contract.Unsettled([]contract.Range{old, recent, none}, version("9")).IsZero())
	require.True(t, contract.Unsettled([]contract.Range{old, recent, none}, contract.Version{}).IsZero())

	through := []contract.Through{{Source: accounts, Position: contract.Position{Offset: 2}}}
	covered, _ = contract.SplitAt([]contract.Range{recent}, at(30), version("8"), settle, through)
	require.Len(t, covered, 1, "the row accounts for it already")
}
