// Package run is the bridge's view of account runs in Temporal: signal one,
// start one, learn how one began and how it ended.
//
// It speaks to the workflow service directly rather than through the SDK's
// client, for three things that the client does not offer: the response to a
// signal names the run that took it, a close event is read for exactly one run
// instead of the end of its chain, and a long poll can be told apart from a
// plain read.
package run
