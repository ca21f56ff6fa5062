// Package audittest tests audits and replays end to end: bridge and worker as
// processes on the embedded stack, their commands as an operator runs them.
package audittest
