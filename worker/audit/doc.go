// Package audit explains what happened to an account, and checks over a window
// that the promises held on real data.
//
// It reads three sources and writes none:
//
//	sync log (Spanner)  every answered call; kept for SYNC_LOG_RETENTION
//	histories (Temporal) what the account's runs took in, tried and decided;
//	                     kept for the namespace's retention
//	offsets, records (Kafka) what was committed, what there was to cover
//
// The sync log is authoritative for calls, Temporal for what is pending, Kafka
// for what changed. Where one of them has forgotten what another still names,
// that is said and not passed over: see [Timeline.Missing].
package audit
