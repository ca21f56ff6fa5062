package deployment

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// server is what Temporal knows of one pipeline's versions, and what it was told.
type server struct {
	client.WorkerDeploymentClient
	client.WorkerDeploymentHandle
	pipeline string // that it knows
	info     client.WorkerDeploymentInfo
	err      error // of every description

	asked   string
	current []client.WorkerDeploymentSetCurrentVersionOptions
	ramping []client.WorkerDeploymentSetRampingVersionOptions
	refuse  error // every order
}

func (s *server) GetHandle(name string) client.WorkerDeploymentHandle {
	s.asked = name
	return s
}

func (s *server) Describe(context.Context, client.WorkerDeploymentDescribeOptions) (client.WorkerDeploymentDescribeResponse, error) {
	if s.asked != s.pipeline {
		return client.WorkerDeploymentDescribeResponse{}, serviceerror.NewNotFound("no such deployment")
	}
	return client.WorkerDeploymentDescribeResponse{Info: s.info}, s.err
}

func (s *server) SetCurrentVersion(_ context.Context, o client.WorkerDeploymentSetCurrentVersionOptions) (client.WorkerDeploymentSetCurrentVersionResponse, error) {
	s.current = append(s.current, o)
	if ramp := s.info.RoutingConfig.RampingVersion; ramp != nil && ramp.BuildID == o.BuildID {
		s.info.RoutingConfig.RampingVersion, s.info.RoutingConfig.RampingVersionPercentage = nil, 0 // as the server does
	}
	return client.WorkerDeploymentSetCurrentVersionResponse{}, s.refuse
}

func (s *server) SetRampingVersion(_ context.Context, o client.WorkerDeploymentSetRampingVersionOptions) (client.WorkerDeploymentSetRampingVersionResponse, error) {
	s.ramping = append(s.ramping, o)
	return client.WorkerDeploymentSetRampingVersionResponse{}, s.refuse
}

var began = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

// known returns a server that knows v1 to v3, in no order of theirs.
func known() *server {
	version := func(build string, hours int) client.WorkerDeploymentVersionSummary {
		return client.WorkerDeploymentVersionSummary{
			Version: worker.WorkerDeploymentVersion{DeploymentName: "crm", BuildID: build}, CreateTime: began.Add(time.Duration(hours) * time.Hour),
		}
	}
	return &server{pipeline: "crm", info: client.WorkerDeploymentInfo{
		VersionSummaries: []client.WorkerDeploymentVersionSummary{version("v2", 1), version("v3", 2), version("v1", 0)},
	}}
}

func (s *server) of(pipeline string) *Pipeline { return &Pipeline{Client: s, Name: pipeline} }

// TestOptions: workers of one pipeline are one deployment, and the runs go with
// it from version to version.
func TestOptions(t *testing.T) {
	require.Equal(t, worker.DeploymentOptions{
		UseVersioning: true, Version: worker.WorkerDeploymentVersion{DeploymentName: "crm", BuildID: "v1"},
		DefaultVersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
	}, Options("crm", "v1"))
}

func TestList(t *testing.T) {
	one := worker.WorkerDeploymentVersion{DeploymentName: "crm", BuildID: "v1"}
	two := worker.WorkerDeploymentVersion{DeploymentName: "crm", BuildID: "v2"}
	third, second, first := Version{Version: "v3", Since: began.Add(2 * time.Hour)}, Version{Version: "v2", Since: began.Add(time.Hour)}, Version{Version: "v1", Since: began}
	working := func(v Version, current bool, percent float32) Version {
		v.Current, v.RampPercent = current, percent
		return v
	}
	for _, test := range []struct {
		name    string
		routing client.WorkerDeploymentRoutingConfig
		want    []Version
	}{
		{"unversioned workers do the work", client.WorkerDeploymentRoutingConfig{}, []Version{third, second, first}},
		{"one has it all", client.WorkerDeploymentRoutingConfig{CurrentVersion: &one}, []Version{third, second, working(first, true, 0)}},
		{"another has a part", client.WorkerDeploymentRoutingConfig{CurrentVersion: &one, RampingVersion: &two, RampingVersionPercentage: 10},
			[]Version{third, working(second, false, 10), working(first, true, 0)}},
		{"a part, the rest unversioned", client.WorkerDeploymentRoutingConfig{RampingVersion: &two, RampingVersionPercentage: 2.5},
			[]Version{third, working(second, false, 2.5), first}},
		{"the ramp goes to unversioned workers", client.WorkerDeploymentRoutingConfig{CurrentVersion: &one, RampingVersionPercentage: 50},
			[]Version{third, second, working(first, true, 0)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := known()
			s.info.RoutingConfig = test.routing
			versions, err := s.of("crm").List(t.Context())
			require.NoError(t, err)
			require.Equal(t, test.want, versions, "newest first")
		})
	}
}

// TestNoVersions: that none has run is told from a server that does not answer.
func TestNoVersions(t *testing.T) {
	s := known()
	_, err := s.of("other").List(t.Context())
	require.ErrorIs(t, err, ErrNone)
	require.ErrorIs(t, s.of("other").Use(t.Context(), "v1"), ErrNone)
	require.ErrorIs(t, s.of("other").Ramp(t.Context(), "v1", 10), ErrNone)
	s.err = errors.New("out")
	_, err = s.of("crm").List(t.Context())
	require.NotErrorIs(t, err, ErrNone)
	require.EqualError(t, err, "versions of crm: out")
	require.ErrorContains(t, s.of("crm").Use(t.Context(), "v1"), "out")
	require.Empty(t, s.current)
}

// TestUseAndRamp order exactly what they say; a version that never ran is not
// ordered, however the server would take it.
func TestUseAndRamp(t *testing.T) {
	s := known()
	require.NoError(t, s.of("crm").Use(t.Context(), "v2"))
	require.Equal(t, []client.WorkerDeploymentSetCurrentVersionOptions{{BuildID: "v2"}}, s.current)
	require.Empty(t, s.ramping)
	require.NoError(t, s.of("crm").Ramp(t.Context(), "v3", 10))
	require.Equal(t, []client.WorkerDeploymentSetRampingVersionOptions{{BuildID: "v3", Percentage: 10}}, s.ramping)
	require.Len(t, s.current, 1)

	const want = `there is no version "v9"; those that have run are v3, v2, v1`
	require.EqualError(t, s.of("crm").Use(t.Context(), "v9"), want)
	require.EqualError(t, s.of("crm").Ramp(t.Context(), "v9", 10), want)
	// An empty one would mean unversioned workers.
	require.ErrorContains(t, s.of("crm").Use(t.Context(), ""), `there is no version ""`)
	require.Len(t, s.current, 1)
	require.Len(t, s.ramping, 1)

	s.refuse = errors.New("its pollers are missing")
	require.EqualError(t, s.of("crm").Use(t.Context(), "v1"), "use version v1: its pollers are missing")
	require.EqualError(t, s.of("crm").Ramp(t.Context(), "v1", 5), "ramp version v1: its pollers are missing")
}

// TestUseTakesAll of the work, also what another version has beside the current
// one: whoever goes back from a version that is being tried wants it to stop.
func TestUseTakesAll(t *testing.T) {
	s := known()
	s.info.RoutingConfig = client.WorkerDeploymentRoutingConfig{
		CurrentVersion:           &worker.WorkerDeploymentVersion{DeploymentName: "crm", BuildID: "v1"},
		RampingVersion:           &worker.WorkerDeploymentVersion{DeploymentName: "crm", BuildID: "v2"},
		RampingVersionPercentage: 10,
	}
	require.NoError(t, s.of("crm").Use(t.Context(), "v1"))
	require.Equal(t, []client.WorkerDeploymentSetCurrentVersionOptions{{BuildID: "v1"}}, s.current)
	require.Equal(t, []client.WorkerDeploymentSetRampingVersionOptions{{}}, s.ramping, "no version, 0 percent: no ramp")

	// On to the one that was tried: there is no ramp left to end.
	s.ramping = nil
	require.NoError(t, s.of("crm").Use(t.Context(), "v2"))
	require.Empty(t, s.ramping)
}
