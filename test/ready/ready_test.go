// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ready

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/nodeclass"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// written are one object of each kind that people write.
var written = map[string]client.ObjectKey{
	"NodeProvider":   {Name: "fleet"},
	"MetalNodeClass": {Name: "default"},
	"TenantCluster":  {Namespace: management.TenantNamespace, Name: "tenant"},
	"Machine":        {Namespace: management.TenantNamespace, Name: "machine-00000"},
}

// ours are those and the NodeTypes of the NodeProvider.
var ours = map[string]client.ObjectKey{
	"NodeProvider": written["NodeProvider"], "MetalNodeClass": written["MetalNodeClass"], "TenantCluster": written["TenantCluster"],
	"Machine": written["Machine"], "NodeType": {Name: "type-0"},
}

// TestReady waits for one object of each kind as kubectl and kstatus do, from the moment that it is written. Then their statuses are as
// an earlier version leaves them, and the manager starts again: they are ready as before, and nothing else has changed.
func TestReady(t *testing.T) {
	system.Only(t)
	cluster := management.New(t, nil)
	cluster.CreateHosts(t, 1)
	class := &v1alpha1.MetalNodeClass{}
	class.Name = written["MetalNodeClass"].Name
	machine := management.Machine(0)
	machine.Spec.Bootstrap.DataSecretName = management.UserDataName
	machine.Spec.Node = &v1alpha1.MachineNode{Name: "node"}
	for _, object := range []client.Object{class, machine} {
		if err := cluster.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for kind, key := range written {
		if got := compute(t, cluster, kind, key); got != status.InProgressStatus {
			t.Errorf("%s that no controller has seen is %s", kind, got)
		}
	}
	cluster.PlayMetal3(t)
	t.Run("New", func(t *testing.T) {
		run(t, cluster)
		tenant := &v1alpha1.TenantCluster{}
		poll.Eventually(t, "the Machine is counted", func(ctx context.Context) error {
			err := cluster.Client.Get(ctx, written["TenantCluster"], tenant)
			if diff := cmp.Diff(&v1alpha1.RolloutStatus{Total: 1, UpToDate: 1}, tenant.Status.Rollout); diff != "" {
				err = errors.Join(err, fmt.Errorf("rollout (-want +got):\n%s", diff))
			}
			return err
		})
		poll.Eventually(t, "the estimate has the Machine", func(ctx context.Context) error {
			nodeType := &v1alpha1.NodeType{}
			err := cluster.Client.Get(ctx, ours["NodeType"], nodeType)
			if nodeType.Status.Provisioning == nil {
				err = errors.Join(err, errors.New("it has no sample"))
			}
			return err
		})
	})
	before := map[string]*unstructured.Unstructured{}
	for kind, key := range ours {
		object := read(t, cluster, kind, key)
		before[kind] = object.DeepCopy()
		asBefore(t, object)
		if err := cluster.Client.Status().Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	hosts := cluster.Hosts(t)
	t.Run("Upgraded", func(t *testing.T) { run(t, cluster) })
	for kind, key := range ours {
		if diff := cmp.Diff(significant(before[kind]), significant(read(t, cluster, kind, key))); diff != "" {
			t.Errorf("%s (-before the upgrade +after):\n%s", kind, diff)
		}
	}
	if diff := cmp.Diff(hosts, cluster.Hosts(t)); diff != "" {
		t.Errorf("the upgrade has changed a server (-before +after):\n%s", diff)
	}
}

// run starts the manager, and plays the provider of the tenant. It waits for all objects.
func run(t *testing.T, cluster *management.Cluster) {
	t.Helper()
	cluster.StartManager(t)
	tenant := &v1alpha1.TenantCluster{}
	if err := cluster.Client.Get(t.Context(), written["TenantCluster"], tenant); err != nil {
		t.Fatal(err)
	}
	patch := client.MergeFrom(tenant.DeepCopy())
	tenant.Status.ObservedClusterUID = env.UID("the-tenant")
	if err := cluster.Client.Status().Patch(t.Context(), tenant, patch); err != nil {
		t.Fatal(err)
	}
	class := &v1alpha1.MetalNodeClass{}
	if err := cluster.Client.Get(t.Context(), written["MetalNodeClass"], class); err != nil {
		t.Fatal(err)
	}
	classes := nodeclass.NewController(clock.RealClock{}, tenanttest.ClustersOf(written["TenantCluster"], cluster.Client, cluster.Client),
		events.NewRecorder(record.NewFakeRecorder(1)))
	if _, err := classes.Reconcile(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "there are NodeTypes", func(ctx context.Context) error {
		return cluster.Client.Get(ctx, ours["NodeType"], &v1alpha1.NodeType{})
	})
	kubeconfig := cluster.Kubeconfig(t, "")
	for kind, key := range ours {
		arguments := []string{"--kubeconfig", kubeconfig, "wait", strings.ToLower(kind) + "." + v1alpha1.Group, key.Name,
			"--for=condition=Ready", "--timeout=3m"}
		if key.Namespace != "" {
			arguments = append(arguments, "--namespace", key.Namespace)
		}
		output, err := exec.CommandContext(t.Context(), kubectl(), arguments...).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments[2:], " "), err, output)
		}
		t.Logf("kubectl %s\n%s", strings.Join(arguments[2:], " "), output)
		poll.Eventually(t, kind+" is observed", func(context.Context) error { // one of an earlier version was ready before
			object := read(t, cluster, kind, key)
			if observed, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration"); observed != object.GetGeneration() {
				return fmt.Errorf("observedGeneration %d, want %d", observed, object.GetGeneration())
			}
			return nil
		})
		if got := compute(t, cluster, kind, key); got != status.CurrentStatus {
			t.Errorf("%s is ready, and kstatus says %s", kind, got)
		}
	}
}

func kubectl() string {
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		return filepath.Join(assets, "kubectl")
	}
	return filepath.Join("..", "..", "bin", "kubectl")
}

func read(t *testing.T, cluster *management.Cluster, kind string, key client.ObjectKey) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	if err := cluster.Client.Get(t.Context(), key, object); err != nil {
		t.Fatal(err)
	}
	return object
}

func compute(t *testing.T, cluster *management.Cluster, kind string, key client.ObjectKey) status.Status {
	t.Helper()
	result, err := status.Compute(read(t, cluster, kind, key))
	if err != nil {
		t.Fatal(err)
	}
	return result.Status
}

// asBefore takes from a status what earlier versions do not write. Machines and MetalNodeClasses had Ready.
func asBefore(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	unstructured.RemoveNestedField(object.Object, "status", "observedGeneration")
	unstructured.RemoveNestedField(object.Object, "status", "rollout")
	if object.GetKind() == "Machine" || object.GetKind() == "MetalNodeClass" {
		return
	}
	all, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		t.Fatal(err)
	}
	var left []any
	for _, entry := range all {
		if condition, ok := entry.(map[string]any); ok && condition["type"] != v1alpha1.ConditionReady {
			left = append(left, entry)
		}
	}
	if err := unstructured.SetNestedSlice(object.Object, left, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
}

// significant is an object without what any write of it changes, and without times.
func significant(object *unstructured.Unstructured) map[string]any {
	for _, field := range []string{"resourceVersion", "managedFields"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	all, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	conditions := map[string]any{}
	for _, entry := range all {
		condition := entry.(map[string]any)
		delete(condition, "lastTransitionTime")
		conditions[fmt.Sprint(condition["type"])] = condition
	}
	_ = unstructured.SetNestedMap(object.Object, conditions, "status", "conditions")
	return object.Object
}
