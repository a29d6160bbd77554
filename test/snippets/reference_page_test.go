// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package snippets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// page holds the YAML blocks of docs/reference-snippets.md, by the name in their first line.
func page(t *testing.T) map[string]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference-snippets.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for part := range strings.SplitSeq(string(content), "\n```yaml\n# ") {
		name, rest, _ := strings.Cut(part, "\n")
		if block, _, found := strings.Cut(rest, "\n```"); found && !strings.HasPrefix(part, "#") {
			blocks[name] = block
		}
	}
	return blocks
}

// installed waits until a Machine's server has an image in its spec, and returns the server and its user data.
func (w *fixture) installed(name string) (*v1alpha1.Machine, *bmov1alpha1.BareMetalHost, map[string][]byte) {
	w.t.Helper()
	machine, host, secret := &v1alpha1.Machine{}, &bmov1alpha1.BareMetalHost{}, &corev1.Secret{}
	poll.Eventually(w.t, "Machine "+name+" is being installed", func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKey{Namespace: tenant, Name: name}, machine); err != nil {
			return err
		}
		if machine.Status.Phase != v1alpha1.MachineProvisioning {
			return fmt.Errorf("its status is %+v", machine.Status)
		}
		if err := w.Client.Get(ctx, client.ObjectKey{Namespace: hosts, Name: machine.Status.HostRef.Name}, host); err != nil {
			return err
		}
		if host.Spec.Image == nil || host.Spec.UserData == nil {
			return fmt.Errorf("host %s has image %v and user data %v", host.Name, host.Spec.Image, host.Spec.UserData)
		}
		return w.Client.Get(ctx, client.ObjectKey{Namespace: hosts, Name: host.Spec.UserData.Name}, secret)
	})
	return machine, host, secret.Data
}

// contains checks that each of the texts is in a document.
func contains(t *testing.T, document []byte, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(string(document), text) {
			t.Errorf("%q is not in:\n%s", text, document)
		}
	}
}

// TestReferencePage applies the YAML of docs/reference-snippets.md, in its order, in one environment.
func TestReferencePage(t *testing.T) {
	w, blocks := newFixture(t), page(t)
	for n := range 6 {
		w.server(fmt.Sprintf("server-%02d", n), "gpu-model=h100", "rack=rack-a")
	}
	steps := []struct {
		name  string
		check func(*testing.T, *fixture)
	}{
		{"objects", nil},
		{"provider", func(_ *testing.T, w *fixture) { w.nodeType("gpu-node", 6) }},
		{"user-data", checkUserData},
		{"templates", checkTemplates},
		{"image", checkImage},
		{"network-data", checkNetworkData},
		{"pools", checkPools},
		{"kubelet-args", checkKubeletArgs},
	}
	for _, step := range steps {
		block, found := blocks[step.name]
		if !found {
			t.Fatalf("the page has no block %q", step.name)
		}
		delete(blocks, step.name)
		if !t.Run(step.name, func(t *testing.T) {
			here := &fixture{Environment: w.Environment, t: t}
			for document := range strings.SplitSeq(block, "\n---\n") {
				here.apply(document)
			}
			if step.name == "pools" {
				// It lives as long as the environment, not as long as this step.
				w.startProvider()
			}
			if step.check != nil {
				step.check(t, here)
			}
		}) {
			t.FailNow() // the next steps depend on it
		}
	}
	for name := range blocks {
		t.Errorf("block %q of the page is not tested", name)
	}
}

func checkUserData(t *testing.T, w *fixture) {
	machine, host, data := w.installed("user-data")
	contains(t, data["userData"], "#cloud-config", "nvme-cli", "nvidia-smi", "operator@example.com")
	if strings.Contains(string(data["userData"]), "kubeadm") {
		t.Errorf("a stand-alone server joins something:\n%s", data["userData"])
	}
	// The network of the provider: an address in a range, the gateway and the name servers, in both places.
	address := machine.Status.Addresses[0].Address
	if !strings.HasPrefix(address, "10.20.0.5") && !strings.HasPrefix(address, "10.20.0.10") {
		t.Errorf("%s is in none of the ranges", address)
	}
	contains(t, data["networkData"], address, "10.20.0.1", "10.20.0.53", "10.20.0.54", host.Spec.BootMACAddress)
	want := map[string]string{"ip-address": address + "/24", "gateway": "10.20.0.1", "dns-servers": "10.20.0.53,10.20.0.54",
		"ntp-servers": "10.20.0.123,ntp.example.com"}
	contains(t, data["userData"], "- 10.20.0.123", "- ntp.example.com")
	for key, value := range want {
		for _, domain := range []string{v1alpha1.Group + "/", "metal3.vcluster.com/"} {
			if got := host.Annotations[domain+key]; got != value {
				t.Errorf("annotation %s%s of the host is %q, want %q", domain, key, got, value)
			}
		}
	}
	// The image of the provider, and a property that is not defined.
	if image := host.Spec.Image; image.URL != "https://images.example.com/ubuntu-noble-gpu.qcow2" || image.ChecksumType != bmov1alpha1.SHA256 {
		t.Errorf("the image is %+v", image)
	}
	if got := machine.Status.NodeLabels["example.com/site"]; got != "us-east-1" {
		t.Errorf("label example.com/site is %q", got)
	}
	// The source of each value is visible; the user data is not.
	for _, property := range machine.Status.Properties {
		wantSource := "NodeProvider metal3-provider"
		switch {
		case property.Key == v1alpha1.PropertyUserData:
			wantSource = "Machine team-a/user-data"
		case strings.HasPrefix(property.Key, v1alpha1.Group+"/image-"):
			wantSource = "OSImage ubuntu-noble-gpu"
		}
		if !strings.HasPrefix(property.Source, wantSource) || strings.Contains(property.Value, "nvme-cli") {
			t.Errorf("property %+v, want it from %s", property, wantSource)
		}
	}
}

func checkTemplates(t *testing.T, w *fixture) {
	machine, host, data := w.installed("templates")
	contains(t, data["userData"], "name: ubuntu", "operator@example.com", "Provisioning templates in project team-a", `echo "us-east-1" `+
		host.Name)
	contains(t, data["networkData"], machine.Status.Addresses[0].Address, host.Spec.BootMACAddress, "8.8.4.4", "10.20.0.1")
	var network struct {
		Links    []any `json:"links"`
		Networks []any `json:"networks"`
	}
	if err := json.Unmarshal(data["networkData"], &network); err != nil || len(network.Links) == 0 || len(network.Networks) == 0 {
		t.Errorf("Metal3 takes network_data.json, not this (%v):\n%s", err, data["networkData"])
	}
}

func checkImage(t *testing.T, w *fixture) {
	_, host, _ := w.installed("image")
	image := host.Spec.Image
	if host.Name != "server-04" || image.URL != "https://images.example.com/debian.raw" ||
		image.Checksum != "d41d8cd98f00b204e9800998ecf8427e" ||
		image.ChecksumType != bmov1alpha1.MD5 || image.DiskFormat == nil || *image.DiskFormat != "raw" {
		t.Errorf("host %s has image %+v", host.Name, image)
	}
}

func checkNetworkData(t *testing.T, w *fixture) {
	_, _, data := w.installed("network-data")
	contains(t, data["networkData"], "ipv4_dhcp", `"bond_mode": "802.3ad"`, `"vlan_id": 100`, `"metric": 50`, "gpu.example.com")
}

// checkPools checks the tenant's Machines, and that nothing is installed before the network is ready.
func checkPools(t *testing.T, w *fixture) {
	w.awaitClaimed(5) // the four Machines, and the static pool's one
	reserve, training := w.pool("reserve"), w.pool("training")
	if reserve.Spec.Replicas == nil || *reserve.Spec.Replicas != 1 {
		t.Errorf("the static pool is %+v", reserve.Spec)
	}
	held := &v1alpha1.Machine{}
	poll.Eventually(t, "the Machine of the pool waits for its network", func(ctx context.Context) error {
		machines, err := w.machines(ctx)
		if err != nil {
			return err
		}
		for _, machine := range machines {
			if machine.Labels[karpv1.NodePoolLabelKey] == "reserve" &&
				machine.Annotations[v1alpha1.HookKey(v1alpha1.PreProvisionHookPrefix, v1alpha1.NetworkHook)] == "vlan:100" {
				held = &machine
				return nil
			}
		}
		return errors.New("there is none")
	})
	if got := held.Spec.Properties[v1alpha1.PropertySSHKeys]; got != "operator" {
		t.Errorf("the Machine of the pool has properties %v", held.Spec.Properties)
	}
	args := v1alpha1.KubeletArgs{"topology-manager-policy": "single-numa-node", "cpu-manager-policy": "static",
		"system-reserved": "cpu=2,memory=4Gi"}
	if diff := cmp.Diff(args, held.Spec.KubeletArgs); diff != "" {
		t.Errorf("arguments of the kubelet of the Machine of the pool (-want +got):\n%s", diff)
	}

	spec := training.Spec
	type requirement struct{ key, operator, values string }
	var requirements []requirement
	for _, r := range spec.Template.Spec.Requirements {
		if r.Key != karpv1.CapacityTypeLabelKey {
			requirements = append(requirements, requirement{r.Key, string(r.Operator), strings.Join(r.Values, ",")})
		}
	}
	// No type has the key of NotExists.
	wantRequirements := []requirement{
		{v1alpha1.NodeTypeLabelKey, "In", "gpu-node,another"}, {"example.com/site", "Exists", ""}, {"rack", "NotIn", "rack-z"},
	}
	if !slices.Equal(requirements, wantRequirements) {
		t.Errorf("the pool selects %v, want %v", requirements, wantRequirements)
	}
	if diff := cmp.Diff([]corev1.Taint{{Key: "team", Value: "training", Effect: corev1.TaintEffectNoSchedule}},
		spec.Template.Spec.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	gpus := spec.Limits["nvidia.com/gpu"]
	if spec.Template.Labels["team"] != "training" || gpus.Value() != 64 || spec.Weight == nil || *spec.Weight != 10 ||
		spec.Template.Spec.TerminationGracePeriod.Duration != 48*time.Hour || *spec.Template.Spec.ExpireAfter.Duration != 720*time.Hour {
		t.Errorf("the dynamic pool is %+v", spec)
	}
	disruption := spec.Disruption
	if *disruption.ConsolidateAfter.Duration != 10*time.Minute || disruption.ConsolidationPolicy != karpv1.ConsolidationPolicyWhenEmpty ||
		len(disruption.Budgets) != 2 {
		t.Fatalf("disruption is %+v", disruption)
	}
	if budget := disruption.Budgets[0]; budget.Nodes != "1" || *budget.Schedule != "0 9 * * 1-5" || budget.Duration.Duration != 8*time.Hour ||
		!slices.Equal(budget.Reasons, []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted}) {
		t.Errorf("the budget is %+v", budget)
	}
	reasons := []karpv1.DisruptionReason{karpv1.DisruptionReasonUnhealthy}
	if diff := cmp.Diff(reasons, disruption.Budgets[1].Reasons); diff != "" {
		t.Errorf("reasons of the budget of node repair (-want +got):\n%s", diff)
	}
	class := &v1alpha1.MetalNodeClass{}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Name: "training"}, class); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v1alpha1.Properties{v1alpha1.PropertySSHKeys: "operator", v1alpha1.PropertyUserDataTemplate: "ubuntu"},
		class.Spec.Properties); diff != "" {
		t.Errorf("properties of the pool (-want +got):\n%s", diff)
	}
	args["max-pods"] = "64"
	if diff := cmp.Diff(args, class.Spec.KubeletArgs); diff != "" {
		t.Errorf("arguments of the kubelets of the pool (-want +got):\n%s", diff)
	}
}

func (w *fixture) pool(name string) *karpv1.NodePool {
	w.t.Helper()
	pool := &karpv1.NodePool{}
	poll.Eventually(w.t, "there is a NodePool "+name, func(ctx context.Context) error {
		return w.Client.Get(ctx, client.ObjectKey{Name: name}, pool)
	})
	return pool
}

// checkKubeletArgs checks the user data of the provider.
func checkKubeletArgs(t *testing.T, w *fixture) {
	secret := &corev1.Secret{}
	poll.Eventually(t, "the Machine has its user data", func(ctx context.Context) error {
		machine := &v1alpha1.Machine{}
		if err := w.Client.Get(ctx, client.ObjectKey{Namespace: tenant, Name: "kubelet-args"}, machine); err != nil {
			return err
		}
		if machine.Spec.Bootstrap.DataSecretName == "" {
			return fmt.Errorf("its status is %+v", machine.Status)
		}
		return w.Client.Get(ctx, client.ObjectKey{Namespace: tenant, Name: machine.Spec.Bootstrap.DataSecretName}, secret)
	})
	join, err := emulator.ReadJoin(secret.Data[v1alpha1.UserDataSecretKey])
	if err != nil {
		t.Fatal(err)
	}
	if got := join.KubeletArgs["max-pods"]; got != "200" {
		t.Errorf("max-pods is %q", got)
	}
}
