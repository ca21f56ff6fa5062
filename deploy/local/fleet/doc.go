// Package fleet tests the fleet's budget with real parts: processes that hold
// nothing but a budget client and an HTTP client, an embedded Temporal server,
// and an upstream that has the kernel record when calls arrive. A whole sync is too slow on a
// small machine to saturate a large budget.
//
//	FLEET_SECONDS=60 go test ./fleet     measures for that long instead of 10 s
//	FLEET_OUTAGE=90                      an outage for that long instead of 20 s
//	FLEET_CLIENTS=50                     also with so many clients
//	FLEET_REPORT=FILE                    appends what was measured
//	FLEET_RECORD=DIR                     records the history of a budget's run
package fleet
