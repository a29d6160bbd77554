// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

func oneServer() []fleet.Server {
	return []fleet.Server{{Name: "gpu-01", Labels: map[string]string{"rack": "r1"}, Capacity: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"),
		"nvidia.com/gpu": resource.MustParse("8"),
	}}}
}

// fakePrograms returns a directory with an empty file for each program of a sandbox.
func fakePrograms(t *testing.T) cluster.Binaries {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubeadm", "baremetal-operator", "kwok", "manager", "provider",
		"webhook",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	crds := filepath.Join(dir, "crds", "metal3")
	if err := os.MkdirAll(crds, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(crds, "hosts.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return cluster.Binaries{dir}
}

func TestConfigFaults(t *testing.T) {
	complete := fakePrograms(t)
	incomplete := fakePrograms(t)
	if err := os.Remove(filepath.Join(incomplete[0], "provider")); err != nil {
		t.Fatal(err)
	}
	noCRDs := fakePrograms(t)
	if err := os.RemoveAll(filepath.Join(noCRDs[0], "crds")); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		config Config
		want   string
	}{
		"Good":    {reason: "Everything has a default but programs and fleet.", config: Config{Binaries: complete, Fleet: oneServer()}},
		"NoFleet": {reason: "Without servers there is nothing to see.", config: Config{Binaries: complete}, want: "no servers"},
		"NoProgram": {reason: "A missing program names the way to get it.", config: Config{Binaries: incomplete, Fleet: oneServer()},
			want: "make tools"},
		"ProgramNotNeeded": {reason: "What is left out need not be there.",
			config: Config{Binaries: incomplete, Fleet: oneServer(), Without: []string{"provider"}}},
		"NoCRDs": {reason: "Metal3's CRDs come with its operator.", config: Config{Binaries: noCRDs, Fleet: oneServer()},
			want: "CRDs of Metal3 are missing"},
		"UnknownPart": {reason: "Only our own parts can be left out.",
			config: Config{Binaries: complete, Fleet: oneServer(), Without: []string{"etcd"}}, want: `cannot do without "etcd"`},
		"TenantName": {reason: "The tenant's name is a namespace.",
			config: Config{Binaries: complete, Fleet: oneServer(), Tenant: "Tenant A"}, want: `tenant "Tenant A"`},
		"TenantInHostSpace": {reason: "A tenant must not see the BMC credentials.",
			config: Config{Binaries: complete, Fleet: oneServer(), Tenant: HostNamespace}, want: "choose another name"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tc.config.complete()
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%s\n%v", tc.reason, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s\nerror is %v, want one with %q", tc.reason, err, tc.want)
			case tc.want != "" && strings.Contains(err.Error(), "\n"):
				t.Errorf("%s\nthe error is more than one line: %v", tc.reason, err)
			}
		})
	}
}

// TestKubernetesOfConfig: what a test sets wins over the environment, which is for tests that set nothing.
func TestKubernetesOfConfig(t *testing.T) {
	t.Setenv(ManagementKubernetesVariable, "1.37")
	t.Setenv(TenantKubernetesVariable, "1.35")
	for name, tc := range map[string]struct {
		reason             string
		config             Config
		management, tenant string
	}{
		"Environment": {reason: "tests on a sandbox are run on other versions", management: "1.37", tenant: "1.35"},
		"One":         {reason: "each is for itself", config: Config{TenantKubernetes: "1.34"}, management: "1.37", tenant: "1.34"},
		"Both": {reason: "the test needs these", config: Config{ManagementKubernetes: "1.36", TenantKubernetes: "1.36"},
			management: "1.36", tenant: "1.36"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.config.Binaries, tc.config.Fleet = fakePrograms(t), oneServer()
			if err := tc.config.complete(); err != nil {
				t.Fatal(err)
			}
			if got := tc.config; got.ManagementKubernetes != tc.management || got.TenantKubernetes != tc.tenant {
				t.Errorf("%s\ngot %q and %q, want %q and %q", tc.reason, got.ManagementKubernetes, got.TenantKubernetes, tc.management, tc.tenant)
			}
		})
	}
}

func TestPodGroupFlags(t *testing.T) {
	const common = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
	for release, want := range map[string]struct{ gates, served string }{
		"1.36.3": {common + ",GangScheduling=true,WorkloadAwarePreemption=true", "v1alpha2"},
		"1.37.0": {common, "v1beta1"},
		"1.38.1": {common, "v1beta1"},
	} {
		if gates, served := podGroups(version.MustParseGeneric(release)); gates != want.gates || served != want.served {
			t.Errorf("Kubernetes %s: got %s and %s, want %s and %s", release, gates, served, want.gates, want.served)
		}
	}
}

func TestNewHost(t *testing.T) {
	host, secret, err := newHost(300, oneServer()[0])
	if err != nil {
		t.Fatal(err)
	}
	if host.Name != "gpu-01" || host.Namespace != HostNamespace || host.Labels["rack"] != "r1" {
		t.Errorf("host is %s/%s with labels %v", host.Namespace, host.Name, host.Labels)
	}
	if host.Spec.BMC.CredentialsName != secret.Name || secret.Namespace != host.Namespace {
		t.Errorf("host refers to secret %s, made is %s/%s", host.Spec.BMC.CredentialsName, secret.Namespace, secret.Name)
	}
	if host.Spec.Online {
		t.Error("a server without a consumer is switched on")
	}
	if want := "52:54:00:00:01:2c"; host.Spec.BootMACAddress != want {
		t.Errorf("MAC is %s, want %s", host.Spec.BootMACAddress, want)
	}
	for _, want := range []string{`"ramMebibytes":524288`, `"count":64`} {
		if details := host.Annotations["inspect.metal3.io/hardwaredetails"]; !strings.Contains(details, want) {
			t.Errorf("hardware details do not have %s: %s", want, details)
		}
	}
}
