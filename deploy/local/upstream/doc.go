// Package upstream simulates the system of record: a rate-limited HTTP service
// whose changes become readable only some time after they were made.
//
// The simulator is the authority on the truth that a run is compared with: it
// made every change, and it saw every call. [Simulator.Change] makes a change
// that becomes readable after a random lag of at most MaxLag; an account's
// versions become readable in order. GET /accounts/{account} answers with the
// newest readable version at the time the request arrived:
//
//	{"account": "a-1", "version": 3, "email": "a-1.v3@example.com", "address": {"city": "Oslo"}}
//
// Faults can be injected for one account or for all.
package upstream
