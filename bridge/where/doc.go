// Package where finds out what became of one record.
//
// A running bridge knows of what it has under way, and nothing else does; of all
// that is over, Kafka (committed offset, commit metadata, the record, the dead
// letters) and Temporal (the account's runs: start input, signals, close event)
// know more. So a bridge is asked first, and [Finder] where no bridge answers or
// where it only knows that the record is done. Neither keeps anything for this.
package where
