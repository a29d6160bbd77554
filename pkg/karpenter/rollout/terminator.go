// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// terminator deletes nodes before their replacements exist.
type terminator struct {
	Dependencies
	replacements *replacements
}

// pool is a NodePool with drifted nodes.
type pool struct {
	// live is the NodePool as read from the API server.
	live *karpv1.NodePool
	// missing are the entries of nodes that were deleted first and have not been replaced.
	missing []entry
	// left is how many more nodes may be disrupted.
	left int
}

// pools returns the NodePools of the candidates by name, with the rest of their budgets. It subtracts the nodes that
// core does not count: their server is being released, or is gone and has not come back yet.
func (t *terminator) pools(ctx context.Context, budgets map[string]int, candidates []*disruption.Candidate) (map[string]*pool, error) {
	pools := map[string]*pool{}
	for _, candidate := range candidates {
		name := candidate.NodePool.Name
		if pools[name] != nil {
			continue
		}
		live, missing, err := t.replacements.open(ctx, name)
		if kube.IsGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		uncounted := 0
		for _, e := range missing {
			if counted, err := t.countedByCore(ctx, e); err != nil {
				return nil, err
			} else if !counted {
				uncounted++
			}
		}
		pools[name] = &pool{live: live, missing: missing, left: max(budgets[name]-uncounted, 0)}
	}
	return pools, nil
}

// countedByCore reports whether core counts the NodeClaim of an entry as disrupted.
func (t *terminator) countedByCore(ctx context.Context, e entry) (bool, error) {
	nodeClaim := &karpv1.NodeClaim{}
	if found, err := kube.Find(ctx, t.Clusters.Tenant.Live, client.ObjectKey{Name: e.NodeClaim}, nodeClaim); err != nil || !found {
		return false, err
	}
	return nodeClaim.UID == e.UID && !nodeClaim.StatusConditions().Get(karpv1.ConditionTypeInstanceTerminating).IsTrue(), nil
}

// terminate returns the command that deletes a candidate without a replacement. First it reads from the API servers
// themselves that the candidate is still drifted, and records it on the NodePool. It returns nil if the candidate must
// not be disrupted, or if the NodePool would be refused the server afterwards: nothing would replace the node.
func (t *terminator) terminate(ctx context.Context, p *pool, candidate *disruption.Candidate, why string) (*disruption.Command, error) {
	drifted, err := t.stillDrifted(ctx, candidate)
	if err != nil || !drifted {
		return nil, err
	}
	if refusal, err := t.Servers.Refusal(ctx, p.live, candidate.Labels()[corev1.LabelInstanceTypeStable]); err != nil {
		return nil, fmt.Errorf("looking for what was refused to NodePool %s, %w", p.live.Name, err)
	} else if refusal != "" {
		t.Recorder.Publish(blocked(candidate, refusal)...)
		return nil, nil
	}
	if err := t.replacements.add(ctx, p.live, p.missing, candidate.NodeClaim); err != nil {
		return nil, err
	}
	log.FromContext(ctx).Info("Deleting a drifted node before its replacement exists", "NodeClaim", candidate.NodeClaim.Name, "NodePool",
		p.live.Name, "why", why)
	t.Recorder.Publish(drainedFirst(candidate, why)...)
	return &disruption.Command{Candidates: []*disruption.Candidate{candidate}}, nil
}

// tryTerminate calls terminate for a pass, and reports whether the pass ends with the candidate. It logs an error and
// ends the pass, but does not return the error: core would skip the methods that follow, so nothing would be
// consolidated while the management cluster does not answer.
func (t *terminator) tryTerminate(
	ctx context.Context, p *pool, candidate *disruption.Candidate, why string,
) (commands []disruption.Command, ended bool) {
	command, err := t.terminate(ctx, p, candidate, why)
	if err != nil {
		log.FromContext(ctx).Info("Leaving a drifted node alone", "NodeClaim", candidate.NodeClaim.Name, "why", err.Error())
		return nil, true
	}
	if command == nil {
		return nil, false
	}
	return []disruption.Command{*command}, true
}

// stillDrifted reads live what core has from its caches: the NodeClaim, whether it may be disrupted, and, for drift of
// its server, the Machine.
func (t *terminator) stillDrifted(ctx context.Context, candidate *disruption.Candidate) (bool, error) {
	nodeClaim := &karpv1.NodeClaim{}
	found, err := kube.Find(ctx, t.Clusters.Tenant.Live, client.ObjectKeyFromObject(candidate.NodeClaim), nodeClaim)
	if err != nil || !found {
		return false, err
	}
	drifted := nodeClaim.StatusConditions().Get(karpv1.ConditionTypeDrifted)
	if nodeClaim.UID != candidate.NodeClaim.UID || !nodeClaim.DeletionTimestamp.IsZero() || !drifted.IsTrue() ||
		nodeClaim.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" {
		return false, nil
	}
	_, _, name, ours := v1alpha1.ParseProviderID(nodeClaim.Status.ProviderID)
	if !ours {
		return false, nil
	}
	machine := &v1alpha1.Machine{}
	if found, err = kube.Find(ctx, t.Clusters.Management.Live, t.Clusters.MachineKey(name), machine); err != nil || !found {
		return false, err // one that is gone is the garbage collector's
	}
	if !machine.DeletionTimestamp.IsZero() || machine.Status.ProviderID != nodeClaim.Status.ProviderID {
		return false, nil
	}
	if slices.Contains(machineReasons, drifted.Reason) {
		return meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionDrifted), nil
	}
	return true, nil
}

// machineReasons are the Machine's reasons of drift. Others mean that the tenant's NodePool or class changed.
var machineReasons = []string{
	v1alpha1.ReasonOSImageChanged, v1alpha1.ReasonUserDataChanged, v1alpha1.ReasonNetworkChanged, v1alpha1.ReasonNodeTypeChanged,
}
