// Package kubernetes checks that Kubernetes and conductord accept the example. It is a
// separate module, so that no other package needs the types of Kubernetes.
package kubernetes_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

type example struct {
	namespace core.Namespace
	service   core.Service
	config    core.ConfigMap
	budget    policy.PodDisruptionBudget
	set       apps.StatefulSet
}

// read decodes the documents of the example; a field that the type lacks is an error.
func read(t *testing.T) *example {
	t.Helper()
	data, err := os.ReadFile("conductord.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e := new(example)
	into := map[string]any{
		"Namespace": &e.namespace, "Service": &e.service, "ConfigMap": &e.config, "PodDisruptionBudget": &e.budget, "StatefulSet": &e.set,
	}
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		object := into[kind.Kind]
		if object == nil {
			t.Fatalf("there are two of the kind %s, or the test does not know it", kind.Kind)
		}
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			t.Errorf("%s: %v", kind.Kind, err)
		}
		delete(into, kind.Kind)
	}
	if len(into) > 0 {
		t.Fatalf("missing: %v", into)
	}
	return e
}

// TestNamesAgree checks that names, labels, ports and volumes fit together.
func TestNamesAgree(t *testing.T) {
	e := read(t)
	pod := e.set.Spec.Template
	node := pod.Spec.Containers[0]
	for what, got := range map[string][2]string{
		"service":          {e.set.Spec.ServiceName, e.service.Name},
		"service's labels": {fmt.Sprint(e.service.Spec.Selector), fmt.Sprint(pod.Labels)},
		"set's labels":     {fmt.Sprint(e.set.Spec.Selector.MatchLabels), fmt.Sprint(pod.Labels)},
		"budget's labels":  {fmt.Sprint(e.budget.Spec.Selector.MatchLabels), fmt.Sprint(pod.Labels)},
		"headless":         {e.service.Spec.ClusterIP, core.ClusterIPNone},
		"management":       {string(e.set.Spec.PodManagementPolicy), string(apps.ParallelPodManagement)},
		"config map":       {pod.Spec.Volumes[0].ConfigMap.Name, e.config.Name},
		"claim":            {e.set.Spec.VolumeClaimTemplates[0].Name, node.VolumeMounts[0].Name},
		"namespaces":       {e.set.Namespace + e.service.Namespace + e.config.Namespace + e.budget.Namespace, strings.Repeat(e.namespace.Name, 4)},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %q is not %q", what, got[0], got[1])
		}
	}
	ports := map[string]int32{}
	for _, port := range node.Ports {
		ports[port.Name] = port.ContainerPort
	}
	for _, port := range e.service.Spec.Ports {
		if ports[port.TargetPort.StrVal] != port.Port {
			t.Errorf("port %s of the service is %d, the container's is %d", port.Name, port.Port, ports[port.TargetPort.StrVal])
		}
	}
	for name, probe := range map[string]*core.Probe{"/healthz": node.LivenessProbe, "/readyz": node.ReadinessProbe} {
		if probe.HTTPGet.Path != name || ports[probe.HTTPGet.Port.StrVal] == 0 || probe.HTTPGet.Scheme != core.URISchemeHTTPS {
			t.Errorf("%+v", probe.HTTPGet)
		}
	}
}

// TestNodesStart checks that conductord accepts the configuration of each pod, with
// certificates made by the commands of docs/install.md. CONDUCTORD is the binary.
func TestNodesStart(t *testing.T) {
	binary := os.Getenv("CONDUCTORD")
	if binary == "" {
		t.Skip("CONDUCTORD names no binary")
	}
	e := read(t)
	dir := t.TempDir()
	run := func(env []string, args ...string) {
		t.Helper()
		command := exec.Command(binary, args...)
		command.Env, command.Dir = env, dir
		if said, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, said)
		}
	}
	const mounted = "/etc/conductord/tls"
	file := filepath.Join(dir, "conductord.toml")
	text := strings.ReplaceAll(e.config.Data["conductord.toml"], mounted, dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run(nil, "cert", "init")
	pod := e.set.Spec.Template.Spec.Containers[0]
	if want := []string{"server", "--config", pod.VolumeMounts[1].MountPath, "--init"}; !slices.Equal(pod.Args, want) {
		t.Errorf("%v, want %v", pod.Args, want)
	}
	for i := range *e.set.Spec.Replicas {
		name := fmt.Sprintf("%s-%d", e.set.Name, i)
		host := fmt.Sprintf("%s.%s.%s.svc.cluster.local", name, e.service.Name, e.namespace.Name)
		for _, port := range pod.Ports {
			if address := net.JoinHostPort(host, fmt.Sprint(port.ContainerPort)); !strings.Contains(text, fmt.Sprintf("%s = %q", port.Name, address)) {
				t.Errorf("no member has %s = %q", port.Name, address)
			}
		}
		run(nil, "cert", "issue", "node", name, "--cluster", "workflows", "--host", host)
		env := []string{"CONDUCTORD_NODE=" + name}
		for _, variable := range pod.Env[1:] {
			value := strings.ReplaceAll(variable.Value, "$(CONDUCTORD_NODE)", name)
			env = append(env, variable.Name+"="+strings.ReplaceAll(value, mounted, dir))
		}
		run(env, "config", "check", "--config", file)
		run(env, "node", "init", "--config", file, "--data-dir", filepath.Join(dir, name))
	}
}
