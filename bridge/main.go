// Bridge hands changes announced on Kafka to Temporal, one workflow per account,
// and commits their offsets once they are covered.
package main

import (
	"os"

	"github.com/quiesce-io/quiesce/internal/process"
)

func main() {
	os.Exit(process.Main("bridge", os.Args[1:], commands()))
}
