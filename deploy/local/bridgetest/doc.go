// Package bridgetest holds what the bridge, or a part of it, has to survive from
// a real Temporal server: runs that end in every way there is, a frontend that
// allows few long polls, a restart with many accounts waiting, everything that a
// change can wait for, an account that changes all the time, partitions that are
// added while changes wait, records of which somebody asks what became
// of them.
//
// One stack serves all tests. Its frontend allows longPolls long polls per
// namespace and method, a tenth of the default. What takes minutes runs with -long
// only.
package bridgetest
