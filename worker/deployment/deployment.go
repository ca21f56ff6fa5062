// Package deployment moves a pipeline's work from one version of the workers to
// the next. Temporal is authoritative for which version is current.
//
// Only syncs and replays are versioned, and all of them upgrade by themselves:
// their runs are short, and recorded histories are replayed before a version is
// built. The budget has no versions; its one run is the whole fleet's.
package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// ErrNone says that no versioned worker of the pipeline has ever run.
var ErrNone = errors.New("no versioned worker has run: start one with WORKER_VERSIONING=true")

// Options are those of a versioned worker.
func Options(pipeline, version string) worker.DeploymentOptions {
	return worker.DeploymentOptions{
		UseVersioning:             true,
		Version:                   worker.WorkerDeploymentVersion{DeploymentName: pipeline, BuildID: version},
		DefaultVersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
	}
}

// Version is one version of the workers.
type Version struct {
	Version string    `json:"version"`
	Since   time.Time `json:"since"` // when its first worker started
	Current bool      `json:"current,omitempty"`
	// RampPercent is how much of the work it gets beside the current one.
	RampPercent float32 `json:"ramp_percent,omitempty"`
}

// Pipeline are the versions of a pipeline's workers.
type Pipeline struct {
	Client client.WorkerDeploymentClient
	Name   string
}

// List returns the versions that Temporal knows, newest first. Where none is
// current, unversioned workers do the work.
func (p *Pipeline) List(ctx context.Context) ([]Version, error) {
	info, err := p.describe(ctx)
	if err != nil {
		return nil, err
	}
	routing := info.RoutingConfig
	var versions []Version
	for _, summary := range info.VersionSummaries {
		v := Version{Version: summary.Version.BuildID, Since: summary.CreateTime}
		v.Current = routing.CurrentVersion != nil && routing.CurrentVersion.BuildID == v.Version
		if routing.RampingVersion != nil && routing.RampingVersion.BuildID == v.Version {
			v.RampPercent = routing.RampingVersionPercentage
		}
		versions = append(versions, v)
	}
	slices.SortFunc(versions, func(a, b Version) int { return b.Since.Compare(a.Since) })
	return versions, nil
}

func (p *Pipeline) describe(ctx context.Context) (client.WorkerDeploymentInfo, error) {
	described, err := p.Client.GetHandle(p.Name).Describe(ctx, client.WorkerDeploymentDescribeOptions{})
	if notFound := (*serviceerror.NotFound)(nil); errors.As(err, &notFound) {
		return client.WorkerDeploymentInfo{}, ErrNone
	}
	if err != nil {
		return client.WorkerDeploymentInfo{}, fmt.Errorf("versions of %s: %w", p.Name, err)
	}
	return described.Info, nil
}

// Use makes a version the current one, with all of the work: new runs and the
// next step of those in flight go to its workers. It must have some. A part that
// another version has is taken from it: to Temporal that is another matter, and
// whoever goes back from a version that is being tried would leave it its part.
func (p *Pipeline) Use(ctx context.Context, version string) error {
	if err := p.known(ctx, version); err != nil {
		return err
	}
	handle := p.Client.GetHandle(p.Name)
	_, err := handle.SetCurrentVersion(ctx, client.WorkerDeploymentSetCurrentVersionOptions{BuildID: version})
	if err != nil {
		return fmt.Errorf("use version %s: %w", version, err)
	}
	// Temporal has ended the ramp of a version that becomes the current one.
	info, err := p.describe(ctx)
	if err != nil {
		return err
	}
	if info.RoutingConfig.RampingVersion == nil && info.RoutingConfig.RampingVersionPercentage == 0 {
		return nil
	}
	if _, err := handle.SetRampingVersion(ctx, client.WorkerDeploymentSetRampingVersionOptions{}); err != nil {
		return fmt.Errorf("use version %s, end the ramp beside it: %w", version, err)
	}
	return nil
}

// Ramp gives a part of the work to a version, beside the current one.
func (p *Pipeline) Ramp(ctx context.Context, version string, percent float32) error {
	if err := p.known(ctx, version); err != nil {
		return err
	}
	_, err := p.Client.GetHandle(p.Name).SetRampingVersion(ctx, client.WorkerDeploymentSetRampingVersionOptions{BuildID: version, Percentage: percent})
	if err != nil {
		return fmt.Errorf("ramp version %s: %w", version, err)
	}
	return nil
}

// known tells a mistyped version from one that Temporal will not take.
func (p *Pipeline) known(ctx context.Context, version string) error {
	versions, err := p.List(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, v := range versions {
		names = append(names, v.Version)
	}
	if !slices.Contains(names, version) {
		return fmt.Errorf("there is no version %q; those that have run are %s", version, strings.Join(names, ", "))
	}
	return nil
}
