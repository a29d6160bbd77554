// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package traces sends the manager's part of the trace from a pod to its node: the claim, and the stages of Metal3. It
// works on the leader only. Without a leader, the trace has a gap.
package traces

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tracing"
)

// Watcher sends a span when a Machine reaches another stage.
type Watcher struct {
	informers cache.Informers
	tracer    *tracing.Tracer
}

// NewWatcher returns a Watcher that sends to the tracer.
func NewWatcher(tracer *tracing.Tracer) *Watcher { return &Watcher{tracer: tracer} }

// Register adds the Watcher and its Tracer to the manager.
func (w *Watcher) Register(_ context.Context, mgr manager.Manager) error {
	w.informers = mgr.GetCache()
	return w.tracer.AddTo(mgr, w)
}

// Start implements manager.Runnable.
func (w *Watcher) Start(ctx context.Context) error {
	_, stop, err := kube.Watch(ctx, w.informers, &v1alpha1.Machine{},
		kube.OnUpdate(func(before, after *v1alpha1.Machine) { w.tracer.SendAll(spans(before, after)) }))
	if err != nil {
		return err
	}
	defer stop()
	<-ctx.Done()
	return nil
}

// claimSpan is the span from the creation of a Machine to the claim on its server. Others are named for stages.
const claimSpan = "Claim"

// spans returns the spans that have ended between two states of a Machine.
func spans(before, after *v1alpha1.Machine) []tracing.Span {
	whole := tracing.Span{Name: tracing.MachineSpan, Namespace: after.Namespace, Trace: after.UID,
		Start: after.CreationTimestamp.Time, Attributes: attributes(after)}
	if uid := after.Annotations[v1alpha1.NodeClaimUIDAnnotationKey]; uid != "" {
		whole.Trace, whole.Parent = types.UID(uid), tracing.NodeClaimSpan
	}
	part := whole
	part.Parent = tracing.MachineSpan
	var ended []tracing.Span
	if claimed, began := conditions.Began(before.Status.Conditions, after.Status.Conditions, v1alpha1.ConditionClaimed); began {
		part.Name, part.End = claimSpan, claimed.LastTransitionTime.Time
		ended = append(ended, part)
	}
	if from, to := before.Status.Progress, after.Status.Progress; from != nil && to != nil && from.Stage != to.Stage && from.Stage != "" {
		part.Name, part.Start, part.End = string(from.Stage), from.LastProgressTime.Time, to.LastProgressTime.Time
		ended = append(ended, part)
		if to.Stage == v1alpha1.StageJoined || to.Stage == v1alpha1.StageProvisioned {
			whole.End = to.LastProgressTime.Time
			ended = append(ended, whole)
		}
	}
	if givenUp, began := conditions.Began(before.Status.Conditions, after.Status.Conditions, v1alpha1.ConditionGivenUp); began {
		whole.End, whole.Failure = givenUp.LastTransitionTime.Time, givenUp.Reason
		ended = append(ended, whole)
	}
	return ended
}

func attributes(machine *v1alpha1.Machine) []attribute.KeyValue {
	found := []attribute.KeyValue{attribute.String("k8s.namespace.name", machine.Namespace), attribute.String("machine", machine.Name)}
	if reference := machine.Status.NodeTypeRef; reference != nil {
		found = append(found, attribute.String("nodetype", reference.Name))
	}
	if host := machine.Status.HostRef; host != nil {
		found = append(found, attribute.String("baremetalhost", host.Namespace+"/"+host.Name))
	}
	return found
}
