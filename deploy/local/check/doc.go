// Package check judges a run: it compares the rows and the sync log in Spanner
// with what the simulator and the load generator know, and counts calls against
// the least that any schedule could have made.
//
// It computes everything with code of its own, so that a fault in the product's
// code does not hide itself. Reading is in tables.go, all else is pure.
package check
