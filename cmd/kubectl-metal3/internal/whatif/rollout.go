// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"fmt"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

// Way is how a node is replaced.
type Way string

const (
	// Stays: the change does not affect the node.
	Stays Way = "Stays"
	// SpareFirst: the replacement joins before the node leaves.
	SpareFirst Way = "SpareFirst"
	// Removed: its pods have room on other nodes, or it has no pods.
	Removed Way = "Removed"
	// DrainFirst: no server is free, so the node is drained first and its server is installed again.
	DrainFirst Way = "DrainFirst"
	// Blocked: its pods would run nowhere, so it is not replaced.
	Blocked Way = "Blocked"
	// Starting: the server is not a node yet, and is replaced once it is.
	Starting Way = "Starting"
	// Unknown: it is a node of another tenant, whose pods are unknown.
	Unknown Way = "Unknown"
)

// Replacement is what becomes of a server that a rollout may affect.
type Replacement struct {
	Machine string `json:"machine"`
	Server  string `json:"server"`
	Node    string `json:"node,omitempty"`
	Way     Way    `json:"way"`
	// By is the replacement server.
	By string `json:"by,omitempty"`
	// Why is why the node has this Way.
	Why string `json:"why,omitempty"`
	// Pods is how many pods move.
	Pods int `json:"pods"`
}

// Rollout is what a new image for a NodeType would do.
type Rollout struct {
	NodeType string      `json:"nodeType"`
	OSImage  string      `json:"osImage"`
	Time     metav1.Time `json:"time"`
	// Replacements has an entry for each Machine. Each plan assumes that the replacements before it are done.
	Replacements []Replacement `json:"replacements"`
	// TypicalSeconds is how long a server of the type takes to become a node; 0 if unknown.
	TypicalSeconds int64 `json:"typicalSeconds,omitempty"`
	// AtOnce is how many nodes of each NodePool its budgets let go at a time, now.
	AtOnce map[string]int `json:"atOnce,omitempty"`
	// LeastSeconds is the shortest time that the rollout takes with AtOnce; 0 if unknown.
	LeastSeconds int64    `json:"leastSeconds,omitempty"`
	Assumes      []string `json:"assumes"`
}

// PredictRollout predicts what would become of the servers of a NodeType with another OSImage.
func PredictRollout(ctx context.Context, snapshot *view.Snapshot, name, image string, mapping topology.Mapping) (*Rollout, error) {
	index := slices.IndexFunc(snapshot.Management.NodeTypes, func(nodeType v1alpha1.NodeType) bool { return nodeType.Name == name })
	if index < 0 {
		return nil, fmt.Errorf("NodeType %q was not found", name)
	}
	current := snapshot.DeepCopy()
	nodeType := &current.Management.NodeTypes[index]
	layers := []properties.Layer{}
	for i := range current.Management.NodeProviders {
		if provider := &current.Management.NodeProviders[i]; provider.Name == nodeType.Spec.ProviderRef.Name {
			layers = append(layers, properties.OfProvider(provider))
		}
	}
	ofType := properties.OfType(nodeType)
	ofType.Values = lo.Assign(ofType.Values, v1alpha1.Properties{v1alpha1.PropertyOSImage: image})
	layers = append(layers, ofType)

	r := &Rollout{NodeType: name, OSImage: image, Time: snapshot.Time, Replacements: []Replacement{}, AtOnce: map[string]int{},
		Assumes: []string{"OSImage " + image + " exists, and tenants may use it", "each node is replaced after the one before it",
			"budgets are those that are active now"}}
	if nodeType.Status.Provisioning != nil {
		r.TypicalSeconds = nodeType.Status.Provisioning.TypicalSeconds
	}
	machines := lo.Filter(current.Management.Machines, func(machine v1alpha1.Machine, _ int) bool {
		return machine.Status.NodeTypeRef != nil && machine.Status.NodeTypeRef.Name == name && machine.Status.HostRef != nil &&
			machine.DeletionTimestamp.IsZero()
	})
	rounds := map[string]int{}
	for i := range machines {
		machine := &machines[i]
		replacement := Replacement{Machine: machine.Namespace + "/" + machine.Name, Node: machine.Status.NodeName,
			Server: machine.Status.HostRef.Namespace + "/" + machine.Status.HostRef.Name}
		if why := unaffected(machine, append(slices.Clone(layers), properties.OfMachine(machine)), image); why != "" {
			replacement.Way, replacement.Why = Stays, why
			r.Replacements = append(r.Replacements, replacement)
			continue
		}
		var err error
		if current, err = replace(ctx, current, machine, &replacement, mapping); err != nil {
			return nil, err
		}
		if replacement.Way != Blocked && replacement.Way != Unknown {
			rounds[machine.Labels[karpv1.NodePoolLabelKey]]++
		}
		r.Replacements = append(r.Replacements, replacement)
	}
	return r, r.count(snapshot, rounds)
}

// unaffected says why the change would install a Machine with the same image; empty if it would not.
func unaffected(machine *v1alpha1.Machine, layers []properties.Layer, image string) string {
	if own := machine.Spec.Properties[v1alpha1.PropertyOSImage]; own != "" {
		return fmt.Sprintf("its class names the image %s itself", own)
	}
	wanted := properties.Merge(layers...).Get(v1alpha1.PropertyOSImage)
	for _, installed := range machine.Status.Installed {
		if v1alpha1.CanonicalKey(installed.Field) == v1alpha1.PropertyOSImage && installed.Value == wanted {
			return "it has the image " + image
		}
	}
	return ""
}

// replace plans the replacement of a drifted Machine, and returns the fleet after it.
func replace(ctx context.Context, before *view.Snapshot, machine *v1alpha1.Machine, replacement *Replacement,
	mapping topology.Mapping) (*view.Snapshot, error) {
	if !ofTenantRead(before, machine) {
		replacement.Way, replacement.Why = Unknown, "it is of another tenant, whose pods are not known"
		return before, nil
	}
	if machine.Status.Phase != v1alpha1.MachineJoined {
		replacement.Way, replacement.Why = Starting, "it is no node yet, and is replaced once it is"
		return before, nil
	}
	moving := map[string]bool{}
	for i := range before.Tenant.Pods {
		if pod := &before.Tenant.Pods[i]; pod.Spec.NodeName == replacement.Node && replacement.Node != "" && podutils.IsReschedulable(pod) {
			moving[pod.Namespace+"/"+pod.Name] = true
		}
	}
	replacement.Pods = len(moving)
	for _, pod := range before.Tenant.Pods {
		if pod.Spec.NodeName == replacement.Node && pod.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" && podutils.IsActive(&pod) {
			replacement.Way, replacement.Why = Blocked, fmt.Sprintf("pod %s/%s has the annotation %s", pod.Namespace, pod.Name,
				karpv1.DoNotDisruptAnnotationKey)
			return before, nil
		}
	}
	for _, way := range []Way{SpareFirst, DrainFirst} {
		change := deleteClaim(machine.Name)
		if way == DrainFirst {
			change = giveBack(replacement.Server)
		}
		p, err := Predict(ctx, before, Question{Topology: mapping, Change: change})
		if err != nil {
			return nil, err
		}
		stuck := lo.Filter(p.Unfit, func(pod Unfit, _ int) bool { return moving[pod.Namespace+"/"+pod.Name] })
		if len(stuck) > 0 {
			replacement.Way, replacement.Why = Blocked,
				fmt.Sprintf("pod %s/%s would run nowhere: %s", stuck[0].Namespace, stuck[0].Name, stuck[0].Message)
			continue
		}
		replacement.Way, replacement.Why = way, ""
		if way == DrainFirst {
			replacement.Why = "no server is free to replace it before"
		}
		for _, server := range p.Servers {
			if slices.ContainsFunc(server.Pods, func(pod string) bool { return moving[pod] }) {
				replacement.By = server.Namespace + "/" + server.Name
			}
		}
		if replacement.By == "" {
			replacement.Way, replacement.Why = Removed, "its pods have room on other nodes"
			if replacement.Pods == 0 {
				replacement.Why = "it has no pods"
			}
		}
		after := p.After()
		if way == SpareFirst {
			_, err = giveBack(replacement.Server)(after)
		}
		return after, err
	}
	return before, nil
}

// deleteClaim returns a change that makes core drain a node. The node keeps its server.
func deleteClaim(name string) Change {
	return func(s *view.Snapshot) ([]string, error) {
		for i := range s.Tenant.NodeClaims {
			if claim := &s.Tenant.NodeClaims[i]; claim.Name == name {
				claim.DeletionTimestamp = &s.Time
			}
		}
		return nil, nil
	}
}

// giveBack returns a change that removes a node and frees its server.
func giveBack(server string) Change {
	return func(s *view.Snapshot) ([]string, error) {
		host, err := view.New(s).Host(server)
		if err != nil {
			return nil, err
		}
		return leave(s, host), nil
	}
}

// count computes AtOnce and LeastSeconds.
func (r *Rollout) count(snapshot *view.Snapshot, rounds map[string]int) error {
	if snapshot.Tenant == nil {
		return nil
	}
	for pool, nodes := range rounds {
		index := slices.IndexFunc(snapshot.Tenant.NodePools, func(nodePool karpv1.NodePool) bool { return nodePool.Name == pool })
		if index < 0 {
			continue
		}
		all := lo.CountBy(snapshot.Tenant.Nodes, func(node corev1.Node) bool { return node.Labels[karpv1.NodePoolLabelKey] == pool })
		allowed, err := snapshot.Tenant.NodePools[index].GetAllowedDisruptionsByReason(clock.RealClock{}, all, karpv1.DisruptionReasonDrifted)
		if err != nil {
			return fmt.Errorf("the budgets of NodePool %s, %w", pool, err)
		}
		r.AtOnce[pool] = min(allowed, all)
		if allowed > 0 {
			r.LeastSeconds = max(r.LeastSeconds, int64((nodes+allowed-1)/allowed)*r.TypicalSeconds)
		}
	}
	return nil
}
