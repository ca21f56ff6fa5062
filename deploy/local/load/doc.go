// Package load makes traffic: changes of accounts at the upstream simulator and
// the Kafka record that tells of each.
//
// Changes come in bursts of one account, 1 to 4 of them about a second apart,
// then the account is quiet: that is what coalescing is for. The sequence of
// times and accounts follows from the seed alone.
//
// The generator is the authority on which changes were made and under which
// offsets; [Generator.Changes] returns them.
package load
