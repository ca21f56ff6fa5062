// Package process is what the two binaries have in common around their work:
// commands and exit codes, the settings they share, the connection to Temporal
// and the status server.
package process
