package startup

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/quiesce-io/quiesce/deploy/local/manifests"
)

// TestKubernetesProbes runs the processes with the settings of the manifests, as
// far as there is no such thing here, and asks what a kubelet asks.
func TestKubernetesProbes(t *testing.T) {
	t.Parallel()
	set, err := manifests.Load(filepath.Join(world.Root, "deploy", "kubernetes"))
	if err != nil {
		t.Fatal(err)
	}
	for name, deployment := range set.Find("Deployment") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secrets := t.TempDir()
			for _, secret := range set.Find("Secret") {
				for key, value := range secret.StringData {
					if err := os.WriteFile(filepath.Join(secrets, key), []byte(value), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			c := deployment.Spec.Template.Spec.Containers[0]
			env := set.Env(c)
			for i, entry := range env {
				env[i] = strings.ReplaceAll(entry, c.VolumeMounts[0].MountPath+"/", secrets+"/")
			}
			// A Kafka that knows the user and the password of the manifests.
			brokers, _ := cluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512",
				set.Find("ConfigMap")["quiesce-bridge"].Data["KAFKA_SASL_USERNAME"], set.Find("Secret")["quiesce-bridge"].StringData["kafka-password"]))
			here := append(usual(), onCluster(brokers)...)
			here = slices.DeleteFunc(here, func(entry string) bool { // what the manifests say stays
				variable, _, _ := strings.Cut(entry, "=")
				return slices.Contains([]string{"SETTLE_TIME", "SETTLE_DELAY", "MAX_CLOCK_SKEW"}, variable)
			})
			r := start(t, c.Command[0], append(append(env, here...), "KAFKA_TLS=false"))
			for _, probe := range []*manifests.Probe{c.Startup, c.Liveness, c.Readiness} {
				await(t, probe.HTTPGet.Path, func() bool {
					code, _ := r.get(probe.HTTPGet.Path)
					return code == http.StatusOK || !r.Running()
				})
			}
			if !r.Running() {
				t.Error("it has ended")
			}
		})
	}
}
