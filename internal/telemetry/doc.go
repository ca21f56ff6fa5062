// Package telemetry is how both processes report: metrics over DogStatsD, logs
// through slog, and the Temporal SDK's own metrics and logs through the same
// two.
//
// All metrics are prefixed "quiesce." and tagged with pipeline and version. No
// tag ever holds an account; log attributes may.
package telemetry
