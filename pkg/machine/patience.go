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
)

// DefaultProvisioningDeadline is how long a Machine may go without progress if its NodeType does not say.
const DefaultProvisioningDeadline = time.Hour

// settling is for how long after its start the manager gives no Machine up for want of progress. What stood still with
// the manager, above all Metal3 in an outage of the whole cluster, gets the time to move on.
const settling = 10 * time.Minute

// pace is what the type of a Machine says of how long it takes and may take.
type pace struct {
	deadline time.Duration
	onError  v1alpha1.OnErrorPolicy
	// estimate is nil as long as no Machine of the type has joined.
	estimate *v1alpha1.ProvisioningEstimate
}

// paceOf reads the pace off the type of a Machine. A type that is gone leaves the defaults, but only the API server
// itself is believed that it is.
func (r *Reconciler) paceOf(ctx context.Context, machine *v1alpha1.Machine) (pace, error) {
	p := pace{deadline: cmp.Or(r.deadline, DefaultProvisioningDeadline), onError: v1alpha1.OnErrorHold}
	if machine.Status.NodeTypeRef == nil {
		return p, nil
	}
	key, nodeType := types.NamespacedName{Name: machine.Status.NodeTypeRef.Name}, &v1alpha1.NodeType{}
	err := r.client.Get(ctx, key, nodeType)
	if apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, key, nodeType)
	}
	switch {
	case err != nil && isGone(err):
		return p, nil
	case err != nil:
		return pace{}, fmt.Errorf("reading NodeType %s, %w", key.Name, err)
	}
	if own := nodeType.Spec.ProvisioningDeadline; own != nil && own.Duration > 0 {
		p.deadline = own.Duration
	}
	p.onError = cmp.Or(nodeType.Spec.OnError, v1alpha1.OnErrorHold)
	p.estimate = nodeType.Status.Provisioning
	return p, nil
}

// judge adds to what a state's handler found how far the Machine is, and gives up on a Machine that has made no progress
// within its deadline, or whose server is in error if its type says Replace.
func (r *Reconciler) judge(ctx context.Context, now *run, outcome result) (result, error) {
	machine, f := now.machine, outcome.facts
	if f.choice != nil || f.unchoose || f.givenUp != "" || !machine.DeletionTimestamp.IsZero() {
		return outcome, nil
	}
	if _, underWay := stageOf(machine, f); !underWay && machine.Status.Progress == nil {
		return outcome, nil
	}
	if isDone(machine.Status.Progress) && machine.Status.Progress != nil {
		return outcome, nil // nothing more is expected of it, and nothing of its type has to be known
	}
	pace, err := r.paceOf(ctx, machine)
	if err != nil {
		return result{}, err
	}
	at := metav1.NewTime(r.clock.Now())
	f.progress = nextProgress(machine, f, pace.estimate, at)
	if f.progress == nil {
		return outcome, nil
	}
	if reason := decidedBefore(machine, now.host); reason != "" {
		return r.giveUpOn(ctx, now, f, reason, pace)
	}
	if isDone(f.progress) {
		return outcome, nil
	}
	if f.reason == v1alpha1.ReasonHostError {
		outcome.waits = true // for its NodeType to say otherwise
		if pace.onError == v1alpha1.OnErrorReplace && isLasting(now.host) {
			return r.replace(ctx, now, outcome, pace)
		}
	}
	if f.progress.Suspended || outcome.again {
		return outcome, nil
	}
	due := r.due(f.progress, pace.deadline).Sub(at.Time)
	if due <= 0 {
		return r.giveUpOn(ctx, now, f, v1alpha1.ReasonDeadlineExceeded, pace)
	}
	f.message = withProgress(condition(machine, v1alpha1.ConditionReady).Message, f.message, f.progress, pace.estimate, at)
	outcome.after = min(cmp.Or(outcome.after, due), due, staleMinutes*time.Minute)
	return outcome, nil
}

// due is when a Machine that makes no more progress is given up.
func (r *Reconciler) due(progress *v1alpha1.MachineProgress, deadline time.Duration) time.Time {
	due, settled := progress.LastProgressTime.Add(deadline), r.started.Add(min(deadline, settling))
	if due.Before(settled) {
		return settled
	}
	return due
}

// startOnce remembers when the manager began to work. It is not when the process started, which may have waited long to
// be the leader.
func (r *Reconciler) startOnce() { r.starting.Do(func() { r.started = r.clock.Now() }) }

// beginning is when a manager began to work.
type beginning struct {
	starting sync.Once
	started  time.Time
}
