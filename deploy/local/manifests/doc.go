// Package manifests reads what deploy/kubernetes and deploy/datadog hold, for
// the tests that hold it against the binaries.
package manifests
