// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/page"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

const clusterLabel = "cluster.x-k8s.io/cluster-name"

// TestMove takes a server from CAPM3 and gives it back, by the commands of the page. CAPM3 and Metal3 are emulated.
func TestMove(t *testing.T) {
	system.Only(t)
	c := cluster{management.New(t, nil)}
	install(t, c.Environment)
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}
	c.patch(t, provider, func() {
		provider.Spec.Metal3.NodeTypes[0].BareMetalHosts = env.HostsWith(map[string]string{"pool": "karpenter"})
	})
	server := types.NamespacedName{Namespace: management.HostsNamespace, Name: "server-01"}
	host := env.AvailableHost(server.Namespace, server.Name, map[string]string{"pool": "capi", clusterLabel: "workload"})
	host.Annotations = map[string]string{"capi.metal3.io/unhealthy": ""}
	associate(host)
	host.Status.Provisioning = bmov1alpha1.ProvisionStatus{State: bmov1alpha1.StateProvisioned, Image: *host.Spec.Image}
	host.Status.PoweredOn = true
	c.CreateHost(t, host)
	for _, object := range []client.Object{
		workers("Machine", "worker-7", template()),
		workers("MachineDeployment", "worker", map[string]any{
			"clusterName": "workload", "replicas": int64(1), "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": template()},
		}),
	} {
		if err := c.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	c.PlayMetal3(t)
	c.playCAPM3(t, server)
	c.StartManager(t)

	bin, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := page.Open(page.Config{
		File: filepath.Join("..", "..", "docs", "neighbours.md"), Dir: filepath.Join(t.TempDir(), "page"), Bin: bin,
		Kubeconfig: c.Kubeconfig(t, ""), Names: []string{
			"-n acme", "-n " + management.TenantNamespace,
			// There is no tenant whose Karpenter would do it.
			"kubectl --kubeconfig acme-admin.kubeconfig delete nodeclaim", "kubectl delete machines.karpenter.metal3.io --wait=false -n " +
				management.TenantNamespace,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	follow := func(section string, blocks int) {
		t.Helper()
		output, err := p.Follow(t.Context(), section, blocks)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s:\n%s", section, output)
	}

	// 1. From CAPM3, with all that it leaves on a host.
	follow("From CAPM3 to here", 2)
	c.eventually(t, server, "CAPM3 has released the server", func(host *bmov1alpha1.BareMetalHost) bool {
		return host.Spec.ConsumerRef == nil
	})
	poll.Eventually(t, "the type has the server", func(ctx context.Context) error {
		return c.says(ctx, "1 server matches, 0 claimed, 0 in error, 1 available")
	})
	machine := management.Machine(0)
	machine.Spec.Bootstrap.DataSecretName = management.UserDataName
	if err := c.Client.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	c.eventually(t, server, "a Machine of ours has the server", func(host *bmov1alpha1.BareMetalHost) bool {
		return host.Spec.ConsumerRef != nil && host.Spec.ConsumerRef.UID == machine.UID &&
			host.Status.Provisioning.State == bmov1alpha1.StateProvisioned
	})

	// 2. Back.
	follow("From here to CAPM3", 1)
	c.eventually(t, server, "CAPM3 has installed the server", func(host *bmov1alpha1.BareMetalHost) bool {
		return host.Spec.ConsumerRef != nil && host.Spec.ConsumerRef.Kind == "Metal3Machine" && host.Status.PoweredOn &&
			host.Status.Provisioning.State == bmov1alpha1.StateProvisioned
	})
	before := c.host(t, server)
	for key := range before.Annotations {
		if strings.HasPrefix(key, v1alpha1.Group) || strings.HasPrefix(key, "metal3."+v1alpha1.ReferenceDomain) {
			t.Errorf("the annotation %s of ours is left on the host", key)
		}
	}

	// 3. It is out of reach.
	next := management.Machine(0)
	next.Name = "next"
	if err := c.Client.Create(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the next Machine waits", func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(next), next); err != nil {
			return err
		}
		claimed := meta.FindStatusCondition(next.Status.Conditions, v1alpha1.ConditionClaimed)
		if claimed == nil || !strings.Contains(claimed.Message, "no server matches") {
			return fmt.Errorf("it says %v", claimed)
		}
		return nil
	})
	if diff := cmp.Diff(before, c.host(t, server)); diff != "" {
		t.Errorf("the server of CAPM3 has changed (-before +after):\n%s", diff)
	}
}

// associate is what CAPM3 writes on a host for a Metal3Machine that is never cleaned.
func associate(host *bmov1alpha1.BareMetalHost) {
	host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3Machine",
		Namespace: host.Namespace, Name: "worker-7"}
	host.OwnerReferences = []metav1.OwnerReference{{APIVersion: host.Spec.ConsumerRef.APIVersion, Kind: "Metal3Machine", Name: "worker-7",
		UID: "7"}}
	metav1.SetMetaDataLabel(&host.ObjectMeta, clusterLabel, "workload")
	host.Spec.Image = &bmov1alpha1.Image{URL: "http://images.example.com/workload.qcow2", Checksum: "d41d8cd98f00b204e9800998ecf8427e"}
	host.Spec.UserData = &corev1.SecretReference{Namespace: host.Namespace, Name: "worker-7"}
	host.Spec.AutomatedCleaningMode = bmov1alpha1.CleaningModeDisabled
	host.Spec.Online = true
	delete(host.Labels, v1alpha1.CAPINodeReuseLabelKey)
}

// dissociate is what CAPM3 takes off a host that is released, and what it leaves, in the order in which it does.
func dissociate(host *bmov1alpha1.BareMetalHost) {
	host.Spec.Image, host.Spec.UserData, host.Spec.Online = nil, nil, false
	if host.Status.Provisioning.State != bmov1alpha1.StateAvailable {
		return
	}
	host.Spec.ConsumerRef, host.OwnerReferences = nil, nil
	delete(host.Labels, clusterLabel)
	metav1.SetMetaDataLabel(&host.ObjectMeta, v1alpha1.CAPINodeReuseLabelKey, "worker")
}

// playCAPM3 does with a host what Cluster API and CAPM3 do when the MachineDeployment has a replica or none.
func (c cluster) playCAPM3(t *testing.T, server types.NamespacedName) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	step := func(ctx context.Context) (bool, error) {
		deployment, host := workers("MachineDeployment", "worker", nil), &bmov1alpha1.BareMetalHost{}
		if c.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment) != nil || c.Client.Get(ctx, server, host) != nil {
			return false, nil // again
		}
		replicas, _, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
		has := host.Spec.ConsumerRef != nil && host.Spec.ConsumerRef.Kind == "Metal3Machine"
		before := client.MergeFromWithOptions(host.DeepCopy(), client.MergeFromWithOptimisticLock{})
		switch {
		case has && replicas == 0:
			dissociate(host)
		case host.Spec.ConsumerRef == nil && replicas == 1 && host.Labels["pool"] == "capi" &&
			host.Status.Provisioning.State == bmov1alpha1.StateAvailable:
			associate(host)
		default:
			return false, nil
		}
		_ = c.Client.Patch(ctx, host, before) // again, if it has changed
		return false, nil
	}
	go func() {
		defer close(ended)
		_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, step) // until it is stopped
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
}

func (c cluster) host(t *testing.T, server types.NamespacedName) *bmov1alpha1.BareMetalHost {
	t.Helper()
	host := &bmov1alpha1.BareMetalHost{}
	if err := c.Client.Get(t.Context(), server, host); err != nil {
		t.Fatal(err)
	}
	return host
}

func (c cluster) eventually(t *testing.T, server types.NamespacedName, what string, is func(*bmov1alpha1.BareMetalHost) bool) {
	t.Helper()
	poll.Eventually(t, what, func(ctx context.Context) error {
		host := &bmov1alpha1.BareMetalHost{}
		if err := c.Client.Get(ctx, server, host); err != nil || is(host) {
			return err
		}
		return fmt.Errorf("consumer %v, state %s, labels %v, annotations %v", host.Spec.ConsumerRef, host.Status.Provisioning.State, host.Labels,
			host.Annotations)
	})
}

// says checks what the first type says of its capacity.
func (c cluster) says(ctx context.Context, want string) error {
	nodeType := &v1alpha1.NodeType{}
	if err := c.Client.Get(ctx, types.NamespacedName{Name: "type-0"}, nodeType); err != nil {
		return err
	}
	has := meta.FindStatusCondition(nodeType.Status.Conditions, v1alpha1.ConditionHasCapacity)
	if has == nil || !strings.Contains(has.Message, want) {
		return fmt.Errorf("it says %v", has)
	}
	return nil
}

func workers(kind, name string, spec map[string]any) *unstructured.Unstructured {
	object := other("cluster.x-k8s.io/v1beta2", kind, name, spec)
	object.SetNamespace(management.HostsNamespace)
	return object
}
