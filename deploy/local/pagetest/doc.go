// Package pagetest tests the status page in a real, headless Chromium, which is
// driven through its DevTools protocol. The statuses are the bridge's and the
// worker's own types, served by the status server that both use.
//
// SCREENSHOTS=DIR keeps pictures of the page there, to be looked at.
package pagetest
