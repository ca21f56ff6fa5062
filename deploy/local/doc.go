// Local runs Quiesce on one machine, on embedded parts or on those that the
// environment names (see package stack).
//
//	go run . demo    the main job under traffic for a while, then a verdict
//	go run . stack   the parts around bridge and worker, until Ctrl-C
//
// The demo's verdict compares Spanner with the simulator's truth row by row and
// the calls with the optimum; it exits with 1 if a promise was broken.
package main
