// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// placement is the server of a pod, and the objects between them.
type placement struct {
	pod, asked, claim, nodeType, why, host, node string
	cost                                         int64
}

// placements finds the server of each running pod: pod, Node, NodeClaim, Machine, host. It returns what is missing if
// one of them is not known yet.
func (b *board) placements(ctx context.Context, pods []string) (found []placement, missing string, err error) {
	nodeTypes := &v1alpha1.NodeTypeList{}
	if err := b.management.List(ctx, nodeTypes); err != nil {
		return nil, "", fmt.Errorf("listing NodeTypes, %w", err)
	}
	claims := &karpv1.NodeClaimList{}
	if err := b.tenant.List(ctx, claims); err != nil {
		return nil, "", fmt.Errorf("listing NodeClaims, %w", err)
	}
	for _, name := range pods {
		pod := &corev1.Pod{}
		if err := b.tenant.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, pod); err != nil {
			return nil, "", fmt.Errorf("reading pod %s, %w", name, err)
		}
		i := slices.IndexFunc(claims.Items, func(claim karpv1.NodeClaim) bool { return claim.Status.NodeName == pod.Spec.NodeName })
		if i < 0 {
			return nil, fmt.Sprintf("no NodeClaim names node %s, where pod %s runs", pod.Spec.NodeName, name), nil
		}
		machine := &v1alpha1.Machine{}
		key := client.ObjectKey{Namespace: b.options.TenantNamespace, Name: claims.Items[i].Name}
		if err := b.management.Get(ctx, key, machine); err != nil {
			return nil, "", fmt.Errorf("reading the Machine of NodeClaim %s, %w", key.Name, err)
		}
		if machine.Status.NodeTypeRef == nil || machine.Status.HostRef == nil || machine.Status.Cost == nil {
			return nil, fmt.Sprintf("the status of Machine %s names no type, host or cost", key), nil
		}
		found = append(found, placement{
			pod: name, asked: describeResources(podRequests(pod)), claim: key.Name, node: pod.Spec.NodeName,
			nodeType: machine.Status.NodeTypeRef.Name, cost: *machine.Status.Cost, host: machine.Status.HostRef.Name,
			why: whyChosen(pod, machine.Status.NodeTypeRef.Name, nodeTypes.Items),
		})
	}
	return found, "", nil
}

// printReport prints the placements, and how long each step took.
func (b *board) printReport(placements []placement) {
	out := b.options.Out
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "POD\tASKED FOR\tTYPE\tCOST\tWHY\tSERVER\t")
	for _, p := range placements {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t\n", p.pod, p.asked, p.nodeType, p.cost, p.why, p.host)
	}
	_ = table.Flush()
	fmt.Fprintln(out)
	table = tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "POD\tPENDING -> CLAIMED\t-> INSTALLED\t-> JOINED\t-> RUNNING\tDELETED -> RELEASING\t-> FREE AGAIN\t")
	for _, p := range placements {
		pod, machine, node, host := subject{kindPod, p.pod}, subject{kindMachine, p.claim}, subject{kindNode, p.node}, subject{kindHost, p.host}
		fmt.Fprintf(table, "%s\t", p.pod)
		for _, interval := range []struct {
			from     subject
			fromStep step
			to       subject
			toStep   step
		}{
			{pod, stepCreated, machine, stepClaimed},
			{machine, stepClaimed, machine, stepProvisioned},
			{machine, stepProvisioned, node, stepJoined},
			{node, stepJoined, pod, stepRunning},
			{pod, stepDeleting, machine, stepDeleting},
			{machine, stepDeleting, host, stepAvailable},
		} {
			took := "?"
			if duration, ok := b.journal.between(interval.from, interval.fromStep, interval.to, interval.toStep); ok {
				// The clusters tell of their objects in any order.
				took = fmt.Sprintf("%.1fs", max(0, duration).Seconds())
			}
			fmt.Fprintf(table, "%s\t", took)
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush()
	fmt.Fprint(out, closing)
}

// closing says which of the times are those of a real fleet, and how to go on.
const closing = `
PENDING -> CLAIMED and DELETED -> RELEASING do not depend on the servers. The other times are those of emulated servers, which install
nothing, boot nothing and erase nothing: a real server takes up to half an hour until it has joined, and minutes until it is free again.

To go on with your own objects: bin/sandbox up --tenant acme --fleet test/docs/fleet.yaml
(docs/README.md, "Type along without hardware").
`

// printNodeTypes prints the NodeTypes with their cost, cheapest first.
func (b *board) printNodeTypes(ctx context.Context) error {
	nodeTypes := &v1alpha1.NodeTypeList{}
	if err := b.management.List(ctx, nodeTypes); err != nil {
		return fmt.Errorf("listing NodeTypes, %w", err)
	}
	slices.SortFunc(nodeTypes.Items, func(a, b v1alpha1.NodeType) int { return int(a.Status.Cost - b.Status.Cost) })
	fmt.Fprintln(b.options.Out)
	table := tabwriter.NewWriter(b.options.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NODETYPE\tHAS\tCOST\tSERVERS\tFREE\t")
	for _, nodeType := range nodeTypes.Items {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t\n", nodeType.Name, describeResources(nodeType.EffectiveResources()),
			nodeType.Status.Cost, nodeType.Status.Capacity.Total, nodeType.Status.Capacity.Available)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing NodeTypes, %w", err)
	}
	return nil
}
