// Package histories replays what really ran against the workflow code of this
// build: what would break runs in flight is found before it is deployed.
package histories
