// Worker executes account syncs: it waits until changes have settled, calls
// upstream once within the budget, and writes the row.
package main

import (
	"os"

	"github.com/quiesce-io/quiesce/internal/process"
)

func main() {
	os.Exit(process.Main("worker", os.Args[1:], commands()))
}
