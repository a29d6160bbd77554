// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/e2e/clusters"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	sandboxes "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
)

const (
	hostNamespace   = "metal3-system"
	tenantNamespace = "tenant-a"
)

// fixture is the two clusters under test.
type fixture struct {
	clusters                               *clusters.Clusters
	management, tenant                     client.WithWatch
	managementKubeconfig, tenantKubeconfig string
	// sandbox is nil if the clusters were there before.
	sandbox  *sandbox
	programs programs
	settings settings
	// namespaces are those that were made for groups, by name.
	namespaces *sync.Map
	// group is that of the test.
	group *group
}

var theFixture = sync.OnceValues(newFixture)

func newFixture() (*fixture, error) {
	w := &fixture{namespaces: &sync.Map{}}
	var err error
	if w.settings, err = readSettings(); err != nil {
		return nil, err
	}
	if w.clusters, err = clusters.Open(context.Background(), sandboxes.Config{TopologyLabels: topologyLabels}); err != nil {
		return nil, err
	}
	opened = w.clusters
	w.management, w.managementKubeconfig = opened.Management, opened.ManagementKubeconfig
	w.tenant, w.tenantKubeconfig = opened.Tenant, opened.TenantKubeconfig
	if opened.Sandbox != nil {
		w.sandbox = &sandbox{box: opened.Sandbox, dir: opened.Dir}
		w.programs = w.sandbox
	} else {
		config, err := clientcmd.BuildConfigFromFlags("", w.managementKubeconfig)
		if err != nil {
			return nil, err
		}
		clientset, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		w.programs = &pods{management: w.management, tenant: w.tenant, clientset: clientset, kubeconfig: w.managementKubeconfig,
			settings: w.settings}
		undo, err := w.allowMachines(context.Background())
		if err != nil {
			return nil, err
		}
		atEnd = func() error { return errors.Join(undo(), w.deleteNamespaces()) }
	}
	if !opened.AllServers {
		threeServers.servers = reference.servers
	}
	return w, opened.DescribeFleet(context.Background()) // all groups need its image
}

// eventually waits until nothing is missing, and fails with what was missing last.
func (w *fixture) eventually(t *testing.T, goal string, check func(context.Context) (missing string, err error)) {
	t.Helper()
	poll.Eventually(t, goal, nothingMissing(check))
}

// nothingMissing is a check for package poll. A check that fails is made again: an API server or etcd may be too busy for a moment.
func nothingMissing(check func(context.Context) (missing string, err error)) func(context.Context) error {
	return func(ctx context.Context) error {
		missing, err := check(ctx)
		if err == nil && missing != "" {
			err = errors.New(missing)
		}
		return err
	}
}

// remove deletes an object, as soon as nothing uses it any more: until then the webhook refuses.
func (w *fixture) remove(t *testing.T, in client.Client, object client.Object) {
	t.Helper()
	what := fmt.Sprintf("%T %s is deleted", object, object.GetName())
	if err := poll.Await(context.Background(), what, func(ctx context.Context) error {
		return client.IgnoreNotFound(in.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}); err != nil {
		t.Error(err)
	}
}

func (w *fixture) fleetIsReady(ctx context.Context) (string, error) {
	for _, name := range w.group.types {
		nodeType := &v1alpha1.NodeType{}
		if err := w.management.Get(ctx, client.ObjectKey{Name: name}, nodeType); err != nil {
			return "there is no NodeType " + name, client.IgnoreNotFound(err)
		}
		if capacity := nodeType.Status.Capacity; capacity.Total == 0 || capacity.Available != capacity.Total {
			return fmt.Sprintf("NodeType %s has %d of %d servers available", nodeType.Name, capacity.Available, capacity.Total), nil
		}
	}
	nodePool := &karpv1.NodePool{}
	if err := w.tenant.Get(ctx, client.ObjectKey{Name: "default"}, nodePool); err != nil {
		return "", err
	}
	if !nodePool.StatusConditions().Root().IsTrue() {
		return "NodePool default is not ready", nil
	}
	return "", nil
}

// deleteAll deletes the pods and the NodeClaims of a test, and keeps the logs of one that has failed.
func (w *fixture) deleteAll(ctx context.Context, t *testing.T) {
	t.Helper()
	if t.Failed() {
		w.showLogs(ctx, t)
	}
	if err := w.deletePods(ctx); err != nil {
		t.Errorf("deleting the pods, %v", err)
	}
	// The next test does not wait for Karpenter to find its nodes empty.
	if err := w.deleteNodeClaims(ctx); err != nil {
		t.Errorf("deleting the NodeClaims, %v", err)
	}
}

// giveBack deletes the pods of a test and waits until every server of the group is free and nothing is left over.
func (w *fixture) giveBack(t *testing.T) {
	t.Helper()
	// The test's own context is over by now.
	ctx, cancel := poll.WithPatience(context.Background())
	defer cancel()
	w.deleteAll(ctx, t)
	if err := poll.Await(ctx, "everything is given back", nothingMissing(w.leftOver)); err != nil {
		t.Error(err)
	}
}

// leftOver names something that a claim of the group left behind, or is empty.
func (w *fixture) leftOver(ctx context.Context) (string, error) {
	for _, left := range []struct {
		from    client.Client
		list    client.ObjectList
		options []client.ListOption
	}{
		{w.tenant, &karpv1.NodeClaimList{}, nil},
		{w.tenant, &corev1.NodeList{}, nil},
		{w.tenant, &corev1.SecretList{},
			[]client.ListOption{client.InNamespace(metav1.NamespaceSystem), client.HasLabels{v1alpha1.MachineUIDLabelKey}}},
		{w.management, &v1alpha1.MachineList{}, []client.ListOption{client.InNamespace(tenantNamespace)}},
		{w.management, &corev1.SecretList{}, []client.ListOption{client.HasLabels{v1alpha1.MachineLabelKey}}},
	} {
		if err := left.from.List(ctx, left.list, left.options...); err != nil {
			return "", err
		}
		items, err := meta.ExtractList(left.list)
		if err != nil {
			return "", err
		}
		for _, item := range items {
			if object := item.(client.Object); w.ownsObject(object) {
				return fmt.Sprintf("%T %s is left", object, object.GetName()), nil
			}
		}
	}
	hosts, err := w.hosts(ctx)
	if err != nil {
		return "", err
	}
	for _, host := range hosts {
		if host.Spec.ConsumerRef != nil || host.Spec.Image != nil || host.Spec.UserData != nil ||
			host.Status.Provisioning.State != bmov1alpha1.StateAvailable {
			return fmt.Sprintf("server %s is %s, consumer %v", host.Name, host.Status.Provisioning.State, host.Spec.ConsumerRef), nil
		}
	}
	return "", nil
}

// ownsObject returns whether an object is of the group. Clusters have nodes of their own, and Machines and Secrets of other tenants.
func (w *fixture) ownsObject(object client.Object) bool {
	switch object := object.(type) {
	case *v1alpha1.Machine:
		return object.Namespace == tenantNamespace && w.group.ownsMachine(object)
	case *corev1.Node:
		_, _, machine, ours := v1alpha1.ParseProviderID(object.Spec.ProviderID)
		return ours && w.group.owns(machine)
	case *corev1.Secret:
		// User data and tokens say in an annotation of which Machine they are; a join is beside its Machine.
		reference := cmp.Or(object.Annotations[v1alpha1.MachineAnnotationKey], object.Annotations[v1alpha1.MachineLabelKey],
			object.Namespace+"/"+object.Labels[v1alpha1.MachineLabelKey])
		namespace, machine, _ := strings.Cut(reference, "/")
		return namespace == tenantNamespace && w.group.owns(machine)
	}
	return w.group.owns(object.GetName())
}

// hosts returns the servers of the group.
func (w *fixture) hosts(ctx context.Context) ([]bmov1alpha1.BareMetalHost, error) {
	hosts := &bmov1alpha1.BareMetalHostList{}
	err := w.management.List(ctx, hosts, client.InNamespace(hostNamespace))
	return slices.DeleteFunc(hosts.Items, func(host bmov1alpha1.BareMetalHost) bool { return !w.group.ownsServer(host.Name) }), err
}

// machines returns those of the group.
func (w *fixture) machines(ctx context.Context) ([]v1alpha1.Machine, error) {
	machines := &v1alpha1.MachineList{}
	err := w.management.List(ctx, machines, client.InNamespace(tenantNamespace))
	return slices.DeleteFunc(machines.Items, func(machine v1alpha1.Machine) bool { return !w.group.ownsMachine(&machine) }), err
}

// nodeClaims returns those of the group.
func (w *fixture) nodeClaims(ctx context.Context) ([]karpv1.NodeClaim, error) {
	claims := &karpv1.NodeClaimList{}
	err := w.tenant.List(ctx, claims)
	return slices.DeleteFunc(claims.Items, func(claim karpv1.NodeClaim) bool { return !w.group.owns(claim.Name) }), err
}

// claimedHosts returns the consumer of each claimed server of the group by the server's name, and fails on a server that is claimed
// by no existing Machine or a Machine that claims two.
func (w *fixture) claimedHosts(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	hosts, err := w.hosts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	claimed, owners := map[string]string{}, map[string]string{}
	for _, host := range hosts {
		if host.Spec.ConsumerRef == nil {
			continue
		}
		consumer := host.Spec.ConsumerRef.Namespace + "/" + host.Spec.ConsumerRef.Name
		if other, ok := owners[consumer]; ok {
			t.Errorf("Machine %s claims both %s and %s", consumer, other, host.Name)
		}
		owners[consumer] = host.Name
		claimed[host.Name] = consumer
	}
	return claimed
}

// events returns those on a pod of the group.
func (w *fixture) events(ctx context.Context, name string) ([]string, error) {
	return w.clusters.PodEvents(ctx, client.ObjectKey{Namespace: w.group.namespace, Name: name})
}

// binary returns the path of one of the programs in bin/.
func binary(name string) (string, error) {
	file, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("%s is not built, run `make tools build`, %w", name, err)
	}
	return file, nil
}

func containsAll(text string, parts ...string) string {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return part
		}
	}
	return ""
}
