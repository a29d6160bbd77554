// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
)

// DefaultProvisioningDeadline is how long a Machine may go without progress if its NodeType does not say.
const DefaultProvisioningDeadline = time.Hour

// startGracePeriod is how long after its start the manager gives up no Machine for lack of progress. Metal3 may have been
// down together with the manager, and needs time to continue.
const startGracePeriod = 10 * time.Minute

// provisioningPolicy is what the type of a Machine says about provisioning.
type provisioningPolicy struct {
	deadline time.Duration
	onError  v1alpha1.OnErrorPolicy
	// estimate is nil until a Machine of the type has joined.
	estimate *v1alpha1.ProvisioningEstimate
}

// policyOf reads the policy from the type of a Machine. Defaults apply if the type does not exist, which only a live read
// can tell.
func (r *Reconciler) policyOf(ctx context.Context, machine *v1alpha1.Machine) (provisioningPolicy, error) {
	p := provisioningPolicy{deadline: cmp.Or(r.deadline, DefaultProvisioningDeadline), onError: v1alpha1.OnErrorHold}
	if machine.Status.NodeTypeRef == nil {
		return p, nil
	}
	key, nodeType := types.NamespacedName{Name: machine.Status.NodeTypeRef.Name}, &v1alpha1.NodeType{}
	err := r.client.Get(ctx, key, nodeType)
	if apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, key, nodeType)
	}
	switch {
	case err != nil && controllers.IsGone(err):
		return p, nil
	case err != nil:
		return provisioningPolicy{}, fmt.Errorf("reading NodeType %s, %w", key.Name, err)
	}
	if own := nodeType.Spec.ProvisioningDeadline; own != nil && own.Duration > 0 {
		p.deadline = own.Duration
	}
	p.onError = cmp.Or(nodeType.Spec.OnError, v1alpha1.OnErrorHold)
	p.estimate = nodeType.Status.Provisioning
	return p, nil
}

// trackProgress adds the progress of the Machine to the facts. It gives up a Machine that has made no progress within its
// deadline, or whose server is in error if its type says Replace.
func (r *Reconciler) trackProgress(ctx context.Context, now *run, outcome result) (result, error) {
	machine, f := now.machine, outcome.facts
	if f.choice != nil || f.clearChoice || f.givenUp != "" || !machine.DeletionTimestamp.IsZero() {
		return outcome, nil
	}
	if _, underWay := stageOf(machine, f); !underWay && machine.Status.Progress == nil {
		return outcome, nil
	}
	if isDone(machine.Status.Progress) && machine.Status.Progress != nil {
		return outcome, nil // it has arrived; its type need not be read
	}
	policy, err := r.policyOf(ctx, machine)
	if err != nil {
		return result{}, err
	}
	at := metav1.NewTime(r.clock.Now())
	f.progress = nextProgress(machine, f, policy.estimate, at)
	if f.progress == nil {
		return outcome, nil
	}
	if reason := decidedBefore(machine, now.host); reason != "" {
		return r.giveUpOn(ctx, now, f, reason, policy)
	}
	if isDone(f.progress) {
		return outcome, nil
	}
	if f.reason == v1alpha1.ReasonHostError {
		outcome.hints = []scheduling.Event{objectChanged} // for its NodeType to say otherwise
		if policy.onError == v1alpha1.OnErrorReplace && isLasting(now.host) {
			return r.replace(ctx, now, outcome, policy)
		}
	}
	if f.progress.Suspended || outcome.again {
		return outcome, nil
	}
	due := r.due(f.progress, policy.deadline).Sub(at.Time)
	if due <= 0 {
		return r.giveUpOn(ctx, now, f, v1alpha1.ReasonDeadlineExceeded, policy)
	}
	f.message = withProgress(condition(machine, v1alpha1.ConditionReady).Message, f.message, f.progress, policy.estimate, at)
	outcome.after = min(cmp.Or(outcome.after, due), due, staleMinutes*time.Minute)
	return outcome, nil
}

// due is when a Machine without further progress is given up.
func (r *Reconciler) due(progress *v1alpha1.MachineProgress, deadline time.Duration) time.Time {
	due, earliest := progress.LastProgressTime.Add(deadline), r.started.Add(min(deadline, startGracePeriod))
	if due.Before(earliest) {
		return earliest
	}
	return due
}

// startOnce records when the manager started to work. The process may have started long before and waited to become the
// leader.
func (r *Reconciler) startOnce() { r.starting.Do(func() { r.started = r.clock.Now() }) }

// start is when a manager started to work.
type start struct {
	starting sync.Once
	started  time.Time
}
