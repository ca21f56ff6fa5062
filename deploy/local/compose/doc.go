// Package compose tests what docker-compose.yml and the Dockerfile promise, as
// far as that goes without a container engine: the file is read by the compose
// specification's own library and held against what the binaries accept, the
// image's build steps run as plain commands, and the services that are ours run
// as processes, with the file's own commands and environments, on an embedded
// stack in place of the images that others publish.
package compose
