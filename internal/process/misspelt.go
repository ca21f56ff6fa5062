package process

import (
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/quiesce-io/quiesce/internal/config"
)

// allSettings are the names of bridge's and worker's settings, one a line. Both
// often get the same environment, so one must not complain about the other's; and
// the bridge does not link what declares the worker's. A test holds the file
// against both binaries' references.
//
//go:embed settings.txt
var allSettings string

// warnMisspelt points out variables that look like a setting and are none.
// environ is as [os.Environ] returns it.
func warnMisspelt(w io.Writer, prefix string, environ []string) {
	names := make([]string, len(environ))
	for i, entry := range environ {
		names[i], _, _ = strings.Cut(entry, "=")
	}
	for _, m := range config.Misspelt(strings.Fields(allSettings), names) {
		fmt.Fprintf(w, "%swarning: %s\n", prefix, m)
	}
}
