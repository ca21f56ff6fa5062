package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v4"
)

// Object is a Kubernetes object, as far as ours use its fields: a field that
// stands in no struct here is an error, so that misspelt ones are found.
type Object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   Metadata
	Data       map[string]string
	StringData map[string]string `yaml:"stringData"`
	Spec       Spec
}

// Metadata names an object.
type Metadata struct {
	Name   string
	Labels map[string]string
}

// Spec is the specification of any of our kinds.
type Spec struct {
	Replicas       int
	Selector       Selector
	Strategy       any
	MaxUnavailable *int `yaml:"maxUnavailable"`
	BackoffLimit   int  `yaml:"backoffLimit"`
	TTL            int  `yaml:"ttlSecondsAfterFinished"`
	Template       struct {
		Metadata Metadata
		Spec     Pod
	}
	// Of what scales.
	Query          string
	ScaleTargetRef struct {
		APIVersion string `yaml:"apiVersion"`
		Kind, Name string
	} `yaml:"scaleTargetRef"`
	MinReplicas int `yaml:"minReplicas"`
	MaxReplicas int `yaml:"maxReplicas"`
	Metrics     []struct {
		Type     string
		External struct {
			Metric struct{ Name string }
			Target struct{ Type, Value string }
		}
	}
	Behavior any
}

// Selector chooses pods.
type Selector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

// Pod is a pod's specification.
type Pod struct {
	ServiceAccountName string          `yaml:"serviceAccountName"`
	RestartPolicy      string          `yaml:"restartPolicy"`
	GracePeriodSeconds int             `yaml:"terminationGracePeriodSeconds"`
	SecurityContext    SecurityContext `yaml:"securityContext"`
	Spread             []struct {
		MaxSkew           int      `yaml:"maxSkew"`
		TopologyKey       string   `yaml:"topologyKey"`
		WhenUnsatisfiable string   `yaml:"whenUnsatisfiable"`
		LabelSelector     Selector `yaml:"labelSelector"`
	} `yaml:"topologySpreadConstraints"`
	Containers []Container
	Volumes    []struct {
		Name   string
		Secret struct {
			SecretName string `yaml:"secretName"`
		}
	}
}

// Container is one container.
type Container struct {
	Name, Image string
	Command     []string
	EnvFrom     []struct {
		ConfigMapRef struct{ Name string } `yaml:"configMapRef"`
	} `yaml:"envFrom"`
	Env []struct {
		Name, Value string
		ValueFrom   struct {
			FieldRef struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Name string
		Port int `yaml:"containerPort"`
	}
	Startup         *Probe `yaml:"startupProbe"`
	Liveness        *Probe `yaml:"livenessProbe"`
	Readiness       *Probe `yaml:"readinessProbe"`
	Resources       struct{ Requests, Limits map[string]string }
	SecurityContext SecurityContext `yaml:"securityContext"`
	VolumeMounts    []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

// Probe asks a container over HTTP.
type Probe struct {
	HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
	PeriodSeconds    int                         `yaml:"periodSeconds"`
	TimeoutSeconds   int                         `yaml:"timeoutSeconds"`
	FailureThreshold int                         `yaml:"failureThreshold"`
}

// SecurityContext is a pod's or a container's.
type SecurityContext struct {
	RunAsNonRoot    bool  `yaml:"runAsNonRoot"`
	SeccompProfile  any   `yaml:"seccompProfile"`
	AllowEscalation *bool `yaml:"allowPrivilegeEscalation"`
	ReadOnlyRoot    bool  `yaml:"readOnlyRootFilesystem"`
	Capabilities    struct{ Drop []string }
}

// Kustomization lists the files of the others.
type Kustomization struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Namespace  string
	Resources  []string
	Images     []struct {
		Name    string
		NewName string `yaml:"newName"`
		NewTag  string `yaml:"newTag"`
	}
}

// Set is all of deploy/kubernetes.
type Set struct {
	Kustomization Kustomization
	Files         map[string][]Object // by the name of the file
}

// Load reads the directory.
func Load(dir string) (Set, error) {
	set := Set{Files: map[string][]Object{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return set, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return set, err
		}
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		decoder.KnownFields(true)
		name := filepath.Base(file)
		if name == "kustomization.yaml" {
			err = decoder.Decode(&set.Kustomization)
		} else {
			set.Files[name], err = objects(decoder)
		}
		if err != nil {
			return set, fmt.Errorf("%s: %w", file, err)
		}
	}
	return set, nil
}

func objects(decoder *yaml.Decoder) (all []Object, err error) {
	for {
		var o Object
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
}

// Find returns the objects of the kind, by name.
func (s Set) Find(kind string) map[string]Object {
	found := map[string]Object{}
	for _, objects := range s.Files {
		for _, o := range objects {
			if o.Kind == kind {
				found[o.Metadata.Name] = o
			}
		}
	}
	return found
}

// Env returns the container's environment as KEY=VALUE, fields of the pod
// included as they are on this machine.
func (s Set) Env(c Container) (env []string) {
	for _, from := range c.EnvFrom {
		for name, value := range s.Find("ConfigMap")[from.ConfigMapRef.Name].Data {
			env = append(env, name+"="+value)
		}
	}
	for _, e := range c.Env {
		value := e.Value
		switch e.ValueFrom.FieldRef.FieldPath {
		case "status.hostIP":
			value = "127.0.0.1"
		case "metadata.uid":
			value = "00000000-0000-0000-0000-000000000000"
		}
		env = append(env, e.Name+"="+value)
	}
	slices.Sort(env)
	return env
}
