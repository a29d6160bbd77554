// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// consumers of hosts that are not our Machines.
var consumers = []corev1.ObjectReference{
	{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3Machine", Namespace: management.HostsNamespace, Name: "worker-7"},
	{APIVersion: "machine.openshift.io/v1beta1", Kind: "Machine", Namespace: "openshift-machine-api", Name: "worker-0", UID: "0"},
	// Its name is that of one of our Machines.
	{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Namespace: management.TenantNamespace, Name: "machine-00001", UID: "1"},
	{APIVersion: "metal3.io/v1alpha1", Kind: "HostClaim", Namespace: "blue", Name: "claim"},
	{Kind: "Operator", Name: "alice"},
	{},
}

// TestForeignHosts: hosts of others are as they were after the life of many Machines beside them, byte by byte, whatever else is
// written on them.
func TestForeignHosts(t *testing.T) {
	system.Only(t)
	const own, foreign, machines = 8, 40, 10
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := cluster{management.New(t, nil)}
	c.CreateHosts(t, own)
	for n := range foreign {
		c.CreateHost(t, foreignHost(random, n))
	}
	before := c.others(t)
	if len(before) != foreign {
		t.Fatalf("%d hosts of others, want %d", len(before), foreign)
	}
	c.PlayMetal3(t)
	c.StartWebhook(t)
	c.StartManager(t)

	// 1. More Machines than servers. One is pinned to a server of CAPM3, and one says of itself that it has a server of
	// OpenShift.
	for n := range machines {
		machine := management.Machine(n % own) // the types of which there are servers
		if n == 0 {
			machine.Spec.Properties = map[string]string{v1alpha1.PropertyServerName: "foreign-00"}
		}
		machine.Name = fmt.Sprintf("machine-%05d", n)
		machine.Spec.Bootstrap.DataSecretName = management.UserDataName
		if err := c.Client.Create(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
	}
	lost := management.Machine(machines - 1)
	c.patchStatus(t, lost, func() {
		host := &bmov1alpha1.BareMetalHost{}
		if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: management.HostsNamespace, Name: "foreign-01"}, host); err != nil {
			t.Fatal(err)
		}
		lost.Status.NodeTypeRef = &v1alpha1.NameReference{Name: "type-1"}
		lost.Status.HostRef = &v1alpha1.HostReference{Namespace: host.Namespace, Name: host.Name, UID: host.UID}
		lost.Status.ProviderID = "metal3://" + host.Namespace + "/" + host.Name + "/" + lost.Name
	})
	poll.Eventually(t, "all servers of ours are installed", func(ctx context.Context) error {
		return c.installed(ctx, own)
	})
	poll.Eventually(t, "the pinned Machine says why it waits", func(ctx context.Context) error {
		machine := &v1alpha1.Machine{}
		if err := c.Client.Get(ctx, types.NamespacedName{Namespace: management.TenantNamespace, Name: "machine-00000"}, machine); err != nil {
			return err
		}
		claimed := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionClaimed)
		const claimedBy = "server metal3-system/foreign-00 is claimed by a Metal3Machine of infrastructure.cluster.x-k8s.io"
		if claimed == nil || !strings.Contains(claimed.Message, claimedBy) {
			return fmt.Errorf("it says %v", claimed)
		}
		return nil
	})
	poll.Eventually(t, "the type says how many servers others have", func(ctx context.Context) error {
		return c.says(ctx, "5 servers match, 5 claimed (4 by others)")
	})

	// 2. What is written on Machines and types on the way.
	for n := range machines {
		machine := management.Machine(n)
		c.patch(t, machine, func() {
			machine.Annotations = map[string]string{v1alpha1.RebootAnnotationKey: v1alpha1.RebootHard}
			if n%2 == 0 {
				machine.Spec.Power = &v1alpha1.MachinePower{State: v1alpha1.PowerOff}
			}
		})
	}
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}
	c.patch(t, provider, func() { provider.Spec.Properties[v1alpha1.PropertyImageURL] = "http://images.example.com/next.qcow2" })

	// 3. All Machines go, some of them by force.
	for n := range machines {
		machine := management.Machine(n)
		if err := c.Client.Delete(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
		if n%4 == 0 {
			c.patch(t, machine, func() { machine.Finalizers = nil })
		}
	}
	poll.Eventually(t, "all servers of ours are free", func(ctx context.Context) error { return c.installed(ctx, 0) })
	list := &v1alpha1.MachineList{}
	poll.Eventually(t, "all Machines are gone", func(ctx context.Context) error {
		if err := c.Client.List(ctx, list); err != nil || len(list.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d are left", len(list.Items))
	})

	if diff := cmp.Diff(before, c.others(t)); diff != "" {
		t.Errorf("hosts of others have changed (-before +after):\n%s", diff)
	}
}

// foreignHost makes a host of another owner, with what there can be on one, ours included.
func foreignHost(random *rand.Rand, n int) *bmov1alpha1.BareMetalHost {
	some := func() bool { return random.IntN(2) == 0 }
	host := env.AvailableHost(management.HostsNamespace, fmt.Sprintf("foreign-%02d", n), map[string]string{
		"kind": fmt.Sprintf("type-%d", n%10), "rack": "rack-0000", "cluster.x-k8s.io/cluster-name": "workload",
	})
	host.Spec.ConsumerRef = consumers[n%len(consumers)].DeepCopy()
	host.Spec.AutomatedCleaningMode = bmov1alpha1.CleaningModeMetadata
	host.Annotations = map[string]string{}
	for key, value := range map[string]string{
		v1alpha1.NodeTypeAnnotationKey: "type-1", v1alpha1.QuarantinedAnnotationKey: "", v1alpha1.MaintenanceAnnotationKey: "",
		v1alpha1.LastTenantAnnotationKey: management.TenantNamespace, v1alpha1.CleaningAnnotationKey: "", v1alpha1.RebootedAnnotationKey: "",
		v1alpha1.HookKey(v1alpha1.PreProvisionHookPrefix, "network"): "", bmov1alpha1.RebootAnnotationPrefix: "",
		bmov1alpha1.PausedAnnotation: "metal3.io/capm3", "capi.metal3.io/unhealthy": "",
	} {
		if n > 0 && random.IntN(4) == 0 { // the pin of the test has no other reason to wait
			host.Annotations[key] = value
		}
	}
	if some() {
		host.OwnerReferences = []metav1.OwnerReference{{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3Machine",
			Name: "worker-7", UID: "2"}}
	}
	if some() {
		host.Spec.AutomatedCleaningMode = bmov1alpha1.CleaningModeDisabled
	}
	// The states that the emulated Metal3 leaves alone.
	host.Spec.Online = some()
	host.Status.PoweredOn = host.Spec.Online
	if some() {
		host.Status.Provisioning.State = bmov1alpha1.StateProvisioned
		host.Spec.Image = &bmov1alpha1.Image{URL: "http://images.example.com/workload.qcow2", Checksum: "d41d8cd98f00b204e9800998ecf8427e"}
		host.Spec.UserData = &corev1.SecretReference{Namespace: host.Namespace, Name: "worker-7"}
	}
	if some() {
		host.Status.OperationalStatus, host.Status.ErrorType = bmov1alpha1.OperationalStatusError, bmov1alpha1.ProvisioningError
		host.Status.ErrorMessage = "image not found"
	}
	return host
}

// cluster is a management cluster with hosts of others.
type cluster struct{ *management.Cluster }

// others are the hosts that are not of ours, by name, as the API server has them.
func (c cluster) others(t *testing.T) map[string]string {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(bmov1alpha1.GroupVersion.WithKind("BareMetalHostList"))
	if err := c.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, host := range list.Items {
		if !strings.HasPrefix(host.GetName(), "foreign-") {
			continue
		}
		text, err := json.MarshalIndent(host.Object, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		all[host.GetName()] = string(text)
	}
	return all
}

// installed waits until so many hosts are installed for our Machines, and the others of ours are free.
func (c cluster) installed(ctx context.Context, want int) error {
	list := &bmov1alpha1.BareMetalHostList{}
	if err := c.Client.List(ctx, list); err != nil {
		return err
	}
	installed, free, ours := 0, 0, 0
	for _, host := range list.Items {
		if strings.HasPrefix(host.Name, "foreign-") {
			continue
		}
		ours++
		switch {
		case host.Spec.ConsumerRef != nil && host.Status.Provisioning.State == bmov1alpha1.StateProvisioned:
			installed++
		case host.Spec.ConsumerRef == nil && host.Status.Provisioning.State == bmov1alpha1.StateAvailable:
			free++
		}
	}
	if installed != want || installed+free != ours {
		return fmt.Errorf("of %d hosts %d are installed and %d are free, want %d installed", ours, installed, free, want)
	}
	return nil
}

// patch changes an object, if it is there.
func (c cluster) patch(t *testing.T, object client.Object, change func()) {
	t.Helper()
	c.write(t, object, change, func(before client.Patch) error { return c.Client.Patch(t.Context(), object, before) })
}

func (c cluster) patchStatus(t *testing.T, object client.Object, change func()) {
	t.Helper()
	c.write(t, object, change, func(before client.Patch) error { return c.Client.Status().Patch(t.Context(), object, before) })
}

func (c cluster) write(t *testing.T, object client.Object, change func(), write func(client.Patch) error) {
	t.Helper()
	err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object)
	if err == nil {
		before := client.MergeFrom(object.DeepCopyObject().(client.Object))
		change()
		err = write(before)
	}
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}
