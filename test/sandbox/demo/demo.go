// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo shows the main job on a running sandbox: pods that request GPUs are created, servers are claimed for
// them, installed and joined, the pods run, and when they are deleted the servers are released. It creates and deletes
// only the objects of a tenant, and watches the rest.
package demo

import (
	"context"
	"fmt"
	"io"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// timeout of each part of the demo. On an idle machine of two cores each takes a fraction of this.
const timeout = 5 * time.Minute

// ProviderArgs are the flags of the provider in a demo. Karpenter does not disrupt a node for twice the time of a batch after it planned a
// pod on the node, which is 20 seconds by default. The demo creates one pod at a time, so its batches may be short.
// The shortest time is 10 seconds.
var ProviderArgs = []string{"--batch-max-duration=2s"}

// Options of a demo. All are required.
type Options struct {
	// Management and Tenant are the two clusters of a running sandbox with the reference fleet in it.
	Management, Tenant *rest.Config
	// HostNamespace has the BareMetalHosts, TenantNamespace the tenant's Machines; both in the management cluster.
	HostNamespace, TenantNamespace string
	// Out receives the output.
	Out io.Writer
}

// Run runs the scenario and prints each step when it happens, and a table at the end. If a step does not happen, the
// error has what is missing.
func Run(ctx context.Context, options Options) error {
	// The watches end with the demo, even if the caller's context does not.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b, err := newBoard(options)
	if err != nil {
		return err
	}
	if err := b.start(ctx); err != nil {
		return err
	}
	b.journal.headline("the platform team describes its servers, the tenant its node pool")
	for _, manifest := range []struct {
		file   string
		target client.Client
	}{
		{examples.ManagementFile, b.managementClient},
		{examples.TenantFile, b.tenantClient},
	} {
		if _, err := examples.Apply(ctx, manifest.target, manifest.file); err != nil {
			return err
		}
	}
	if err := b.releaseTogether(ctx); err != nil {
		return err
	}
	if err := b.until(ctx, "the fleet is ready", b.fleetIsReady); err != nil {
		return err
	}
	if err := b.printNodeTypes(ctx); err != nil {
		return err
	}

	pods, err := b.playWorkload(ctx)
	if err != nil {
		return err
	}
	// The pods may run before Karpenter has written the node names to the NodeClaims.
	var placements []placement
	if err := b.until(ctx, "it is known which server each pod is on", func(ctx context.Context) (missing string, err error) {
		placements, missing, err = b.placements(ctx, pods)
		return missing, err
	}); err != nil {
		return err
	}

	b.journal.headline("all pods run; the tenant deletes them, and the servers go back")
	for _, placement := range placements {
		b.journal.forget(subject{kindHost, placement.host}, stepAvailable)
	}
	for _, name := range pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
		// The taint that Karpenter has just removed from a new node may still evict a pod.
		if err := client.IgnoreNotFound(b.tenantClient.Delete(ctx, pod)); err != nil {
			return fmt.Errorf("deleting pod %s, %w", name, err)
		}
	}
	if err := b.until(ctx, "every server is back in the pool", b.everythingIsBack); err != nil {
		return err
	}
	if err := b.nothingIsLeft(ctx); err != nil {
		return err
	}
	b.journal.headline("every server is free again; nothing is left over")
	b.printReport(placements)
	return nil
}

// consolidateAfter of the demo's NodePools. Karpenter looks for empty nodes every ten seconds, and takes 15 more for those that it finds.
// With less than this it finds the first nodes before it may disrupt the last one, which then waits for another turn.
const consolidateAfter = 10 * time.Second

// releaseTogether has Karpenter find all empty nodes at one time.
func (b *board) releaseTogether(ctx context.Context) error {
	pools := &karpv1.NodePoolList{}
	if err := b.tenantClient.List(ctx, pools); err != nil {
		return fmt.Errorf("listing NodePools, %w", err)
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		before := pool.DeepCopy()
		pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration(consolidateAfter.String())
		if err := b.tenantClient.Patch(ctx, pool, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("changing NodePool %s, %w", pool.Name, err)
		}
	}
	return nil
}

// playWorkload creates each pod when the previous one runs. If they were created together, the scheduler could bind a
// small pod to the server that was claimed for a big one.
func (b *board) playWorkload(ctx context.Context) ([]string, error) {
	workload, err := examples.Objects(examples.WorkloadFile)
	if err != nil {
		return nil, err
	}
	var pods []string
	for _, pod := range workload {
		b.journal.headline("a tenant creates pod %s; there is no node for it", pod.GetName())
		if err := b.tenantClient.Create(ctx, pod); err != nil {
			return nil, fmt.Errorf("creating pod %s, %w", pod.GetName(), err)
		}
		pods = append(pods, pod.GetName())
		if err := b.until(ctx, "pod "+pod.GetName()+" runs", func(ctx context.Context) (string, error) {
			return b.podsRun(ctx, pods)
		}); err != nil {
			return nil, err
		}
	}
	return pods, nil
}

// fleetIsReady returns what is missing for the tenant to get servers.
func (b *board) fleetIsReady(ctx context.Context) (string, error) {
	nodeTypes := &v1alpha1.NodeTypeList{}
	if err := b.management.List(ctx, nodeTypes); err != nil {
		return "", fmt.Errorf("listing NodeTypes, %w", err)
	}
	if len(nodeTypes.Items) == 0 {
		return "there are no NodeTypes", nil
	}
	for _, nodeType := range nodeTypes.Items {
		capacity := nodeType.Status.Capacity
		if capacity.Total == 0 || capacity.Available != capacity.Total {
			return fmt.Sprintf("NodeType %s has %d of %d servers available", nodeType.Name, capacity.Available, capacity.Total), nil
		}
	}
	nodePools := &karpv1.NodePoolList{}
	if err := b.tenant.List(ctx, nodePools); err != nil {
		return "", fmt.Errorf("listing NodePools, %w", err)
	}
	for _, nodePool := range nodePools.Items {
		if ready := nodePool.StatusConditions().Root(); !ready.IsTrue() {
			return fmt.Sprintf("NodePool %s is not ready: %s", nodePool.Name, ready.Message), nil
		}
	}
	if len(nodePools.Items) == 0 {
		return "there are no NodePools", nil
	}
	return "", nil
}

func (b *board) podsRun(ctx context.Context, names []string) (string, error) {
	for _, name := range names {
		pod := &corev1.Pod{}
		if err := b.tenant.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, pod); err != nil {
			if client.IgnoreNotFound(err) == nil {
				return fmt.Sprintf("pod %s is not there yet", name), nil
			}
			return "", fmt.Errorf("reading pod %s, %w", name, err)
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("pod %s is %s", name, pod.Status.Phase), nil
		}
	}
	return "", nil
}

// everythingIsBack returns which NodeClaim, Node, Machine or claimed server is left.
func (b *board) everythingIsBack(ctx context.Context) (string, error) {
	hosts := &bmov1alpha1.BareMetalHostList{}
	for _, remaining := range []struct {
		what string
		from client.Reader
		list client.ObjectList
	}{
		{"NodeClaims", b.tenant, &karpv1.NodeClaimList{}},
		{"Nodes", b.tenant, &corev1.NodeList{}},
		{"Machines", b.management, &v1alpha1.MachineList{}},
		{"", b.management, hosts},
	} {
		if err := remaining.from.List(ctx, remaining.list); err != nil {
			return "", fmt.Errorf("listing %T, %w", remaining.list, err)
		}
		if count := meta.LenList(remaining.list); remaining.what != "" && count > 0 {
			return fmt.Sprintf("%d %s are still there", count, remaining.what), nil
		}
	}
	for _, host := range hosts.Items {
		if host.Spec.ConsumerRef != nil || host.Status.Provisioning.State != bmov1alpha1.StateAvailable {
			return fmt.Sprintf("server %s is %s", host.Name, host.Status.Provisioning.State), nil
		}
	}
	return "", nil
}

// nothingIsLeft reads Secrets and tokens of released servers from both API servers, not from caches.
func (b *board) nothingIsLeft(ctx context.Context) error {
	for _, place := range []struct {
		cluster   string
		from      client.Client
		namespace string
		label     string
	}{
		{"management", b.managementClient, b.options.HostNamespace, v1alpha1.MachineLabelKey},
		{"management", b.managementClient, b.options.TenantNamespace, v1alpha1.MachineLabelKey},
		{"tenant", b.tenantClient, metav1.NamespaceSystem, v1alpha1.MachineUIDLabelKey},
	} {
		secrets := &corev1.SecretList{}
		if err := place.from.List(ctx, secrets, client.InNamespace(place.namespace), client.HasLabels{place.label}); err != nil {
			return fmt.Errorf("listing secrets in %s of the %s cluster, %w", place.namespace, place.cluster, err)
		}
		if len(secrets.Items) > 0 {
			return fmt.Errorf("secret %s/%s is left over in the %s cluster", place.namespace, secrets.Items[0].Name, place.cluster)
		}
	}
	return nil
}
