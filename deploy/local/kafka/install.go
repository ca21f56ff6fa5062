package kafka

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed pom.xml
var pom []byte

// ErrUnavailable is returned where there is no Java or no Maven.
var ErrUnavailable = errors.New("no Apache Kafka here")

// Installation is a Java and the jars of a broker.
type Installation struct {
	java      string
	classpath string
}

// Install returns the installation below root's .cache, and fetches it first if
// it is not there. Several processes may do so at once.
func Install(ctx context.Context, root string) (Installation, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return Installation{}, fmt.Errorf("%w: java (17 or newer) is not on the PATH", ErrUnavailable)
	}
	sum := sha256.Sum256(pom)
	dir := filepath.Join(root, ".cache", "kafka-"+hex.EncodeToString(sum[:4]))
	installed := Installation{java: java, classpath: filepath.Join(dir, "*")}
	if _, err := os.Stat(dir); err == nil {
		return installed, nil
	}
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return Installation{}, fmt.Errorf("%w: mvn is not on the PATH", ErrUnavailable)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return Installation{}, fmt.Errorf("install Kafka: %w", err)
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "kafka-fetch-")
	if err != nil {
		return Installation{}, fmt.Errorf("install Kafka: %w", err)
	}
	defer os.RemoveAll(work)
	file, jars := filepath.Join(work, "pom.xml"), filepath.Join(work, "jars")
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return Installation{}, fmt.Errorf("install Kafka: %w", err)
	}
	output, err := exec.CommandContext(ctx, mvn, "-B", "-q", "-f", file, "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+jars).CombinedOutput()
	if err != nil {
		return Installation{}, fmt.Errorf("install Kafka: mvn: %w\n%s", err, output)
	}
	// Complete or not there at all. Whoever comes second finds it done.
	if err := os.Rename(jars, dir); err != nil {
		if _, statErr := os.Stat(dir); statErr != nil {
			return Installation{}, fmt.Errorf("install Kafka: %w", err)
		}
	}
	return installed, nil
}
