package audittest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// TestRollout moves a pipeline from unversioned workers to version 1 and on to
// version 2, with changes coming all the while: at times two of them work at
// once. Nothing is stuck and nothing is lost.
func TestRollout(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	worker := func(version string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		path, err := stack.BuildBinary(ctx, world.Root, "worker", "-ldflags", "-X github.com/quiesce-io/quiesce/internal/process.Version="+version)
		require.NoError(t, err)
		return path
	}
	old := p.run("worker")
	p.run("bridge")
	names := accounts(12)
	awaitBy := func(what string, version ...string) {
		t.Helper()
		p.await(what, func() bool {
			p.change(names...)
			p.committed()
			builds := p.builds(names)
			for _, v := range version {
				if !builds[v] {
					return false
				}
			}
			return len(builds) == len(version)
		})
	}

	_, stderr, code := p.exit("worker", "versions", "use", "v1")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "WORKER_VERSIONING=true")

	one := p.runPath("worker", worker("v1"), "WORKER_VERSIONING=true")
	p.await("version 1 is known", func() bool { return strings.Contains(p.list(), "v1") })
	awaitBy("until it is told to, it does no work", "")
	p.command("worker", "versions", "use", "v1")
	awaitBy("version 1 does all the work", "v1")
	require.NoError(t, old.Kill())

	two := p.runPath("worker", worker("v2"), "WORKER_VERSIONING=true")
	p.await("version 2 is known", func() bool { return strings.Contains(p.list(), "v2") })
	_, stderr, code = p.exit("worker", "versions", "use", "v3")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, `no version "v3"; those that have run are v2, v1`)
	p.command("worker", "versions", "use", "v2", "--ramp", "50")
	awaitBy("both work", "v1", "v2")
	p.command("worker", "versions", "use", "v1")
	awaitBy("version 2 has lost its part", "v1")

	// Changes that wait for their call while versions change hands.
	p.change(names...)
	p.command("worker", "versions", "use", "v2")
	require.NoError(t, one.Kill())
	p.committed()
	awaitBy("version 2 does all the work", "v2")

	// And back: a rollback is the same command.
	p.runPath("worker", worker("v1"), "WORKER_VERSIONING=true")
	p.command("worker", "versions", "use", "v1")
	awaitBy("version 1 does all the work again", "v1")
	require.NoError(t, two.Kill())
	p.change(names...)
	p.committed()

	r, code := p.verify()
	require.Zero(t, code, "%+v", r.Violations)
	require.Equal(t, len(names), r.Counts.Accounts)
	require.Contains(t, p.command("worker", "histories", "verify"), "build v2")
}

func (p *pipeline) list() string {
	stdout, _, _ := p.exit("worker", "versions", "list")
	return stdout
}

// builds returns the builds that made the accounts' latest runs; "" stands for
// unversioned ones.
func (p *pipeline) builds(accounts []string) map[string]bool {
	p.Helper()
	builds := map[string]bool{}
	for _, account := range accounts {
		events := world.temporal.GetWorkflowHistory(p.Context(), p.name+"/account/"+account, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			event, err := events.Next()
			require.NoError(p, err)
			if done := event.GetWorkflowTaskCompletedEventAttributes(); done != nil {
				builds[done.GetDeploymentVersion().GetBuildId()] = true
			}
		}
	}
	return builds
}
