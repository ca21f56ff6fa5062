package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/config"
)

type settings struct {
	Name   string        `env:"NAME" help:"A name."`
	Count  int           `env:"COUNT" help:"A number."`
	Wait   time.Duration `env:"WAIT" help:"A duration."`
	On     bool          `env:"ON" help:"A switch."`
	Words  []string      `env:"WORDS" help:"Some words."`
	Token  config.Secret `env:"TOKEN" help:"A secret."`
	Nested struct {
		Size config.Bytes `env:"SIZE" help:"A size."`
	}
	Ignored chan int
}

func load(t *testing.T, environment map[string]string, args ...string) (settings, *config.Set, error) {
	t.Helper()
	s := settings{Name: "default", Count: 7}
	set := config.Bind("test", &s)
	err := set.Load(args, func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	})
	return s, set, err
}

func TestLoad(t *testing.T) {
	s, set, err := load(t, map[string]string{
		"COUNT": "8", "WAIT": "1m30s", "ON": "true", "WORDS": "a, b,,c", "TOKEN": "hush", "SIZE": "64MiB", "NAME": "",
	}, "--wait", "5s")
	require.NoError(t, err)
	require.Equal(t, "default", s.Name, "empty is unset")
	require.Equal(t, 8, s.Count)
	require.Equal(t, 5*time.Second, s.Wait, "the flag wins")
	require.True(t, s.On)
	require.Equal(t, []string{"a", "b", "c"}, s.Words)
	require.Equal(t, "hush", s.Token.Reveal())
	require.EqualValues(t, 64<<20, s.Nested.Size)

	shown := map[string]string{}
	for _, setting := range set.Settings() {
		shown[setting.Name] = setting.Value
	}
	require.Equal(t, map[string]string{
		"NAME": "default", "COUNT": "8", "WAIT": "5s", "ON": "true", "WORDS": "a,b,c", "TOKEN": "[redacted]", "SIZE": "64MiB",
	}, shown)
}

func TestLoadReportsEveryFault(t *testing.T) {
	s, _, err := load(t, map[string]string{"COUNT": "many", "WAIT": "soon", "SIZE": "big"})
	require.ErrorContains(t, err, "COUNT=many: ")
	require.ErrorContains(t, err, "WAIT=soon: ")
	require.ErrorContains(t, err, "SIZE=big: ")
	require.Equal(t, 7, s.Count, "a malformed value leaves the default")

	s, _, err = load(t, nil, "--count=many", "--wait", "soon", "--nosuch", "--name", "x")
	require.ErrorContains(t, err, "-count")
	require.ErrorContains(t, err, "-wait")
	require.ErrorContains(t, err, "-nosuch")
	require.Equal(t, 7, s.Count)
	require.Equal(t, "x", s.Name, "what can be read is read")
	_, _, err = load(t, nil, "--help")
	require.ErrorIs(t, err, flag.ErrHelp)
}

func TestFlagsMayFollowArguments(t *testing.T) {
	s, set, err := load(t, nil, "alice", "--count", "9", "bob", "-on")
	require.NoError(t, err)
	require.Equal(t, []string{"alice", "bob"}, set.Args)
	require.Equal(t, 9, s.Count)
	require.True(t, s.On)
}

func TestSecretsComeFromFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("hush\n"), 0o600))
	s, _, err := load(t, map[string]string{"TOKEN_FILE": file})
	require.NoError(t, err)
	require.Equal(t, "hush", s.Token.Reveal())

	_, _, err = load(t, map[string]string{"TOKEN_FILE": file + "x"})
	require.ErrorContains(t, err, "TOKEN_FILE=")
	_, _, err = load(t, map[string]string{"TOKEN_FILE": file, "TOKEN": "hush"})
	require.ErrorContains(t, err, "unset one")
	require.NotContains(t, err.Error(), "hush", "no secret in an error")
}

func TestOneSettingMayLoadIntoTwoStructs(t *testing.T) {
	type other struct {
		Wait time.Duration `env:"WAIT" help:"The same."`
	}
	a, b := settings{}, other{}
	set := config.Bind("test", &a, &b)
	require.NoError(t, set.Load([]string{"--wait=3s"}, func(string) (string, bool) { return "", false }))
	require.Equal(t, 3*time.Second, a.Wait)
	require.Equal(t, 3*time.Second, b.Wait)
}

func TestSettleNamesTheRelation(t *testing.T) {
	s := config.DefaultSettle()
	require.NoError(t, s.Validate())
	s.Delay = 20 * time.Second
	require.ErrorContains(t, s.Validate(), "SETTLE_DELAY=20s: must be at least SETTLE_TIME + MAX_CLOCK_SKEW = 21s")
}

func TestBytes(t *testing.T) {
	var b config.Bytes
	for text, want := range map[string]config.Bytes{"1": 1, "2KiB": 2048, "3 MiB": 3 << 20, "4GiB": 4 << 30, "5B": 5} {
		require.NoError(t, b.UnmarshalText([]byte(text)))
		require.Equal(t, want, b)
	}
	require.Equal(t, "1536B", config.Bytes(1536).String())
	for _, text := range []string{"", "x", "1TB", "1.5MiB", "99999999999GiB"} {
		require.Error(t, b.UnmarshalText([]byte(text)), text)
	}
}
