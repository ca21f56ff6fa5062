// Package processtest holds what the tests of both binaries share.
package processtest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/internal/process"
)

var word = regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`)

// RequireExamples checks that every command has examples in its help, and that
// each example names the command, with flags it has and values they take.
func RequireExamples(t *testing.T, commands []process.Command) {
	for _, c := range commands {
		name, _, _ := strings.Cut(c.Name, " [")
		name = strings.TrimRight(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ/ ")
		require.NotEmpty(t, c.Examples, name)
		for _, example := range c.Examples {
			line, _, _ := strings.Cut(example, " #") // a comment
			line, _, _ = strings.Cut(line, " > ")    // where the shell puts the output
			rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
			require.True(t, ok, "%q is no %s", example, name)
			var args []string
			for _, w := range word.FindAllString(rest, -1) {
				args = append(args, strings.Trim(w, `"'`))
			}
			set := config.Bind(name, c.Settings...)
			if c.Flags != nil {
				c.Flags(set.Flags)
			}
			require.NoError(t, set.Load(args, func(string) (string, bool) { return "", false }), example)
			announced := strings.Count(c.Name, " ") - strings.Count(name, " ")
			require.LessOrEqual(t, len(set.Args), announced, example)
		}
	}
}
