// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package traces sends the provider's part of the trace from a pod to its node: the wait of the pods, and the
// NodeClaim. It works on the leader only. Without a leader, the trace has a gap.
package traces

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tracing"
)

// Watcher sends a span when a NodeClaim gets further, and when a pod that waited for a NodeClaim is bound.
type Watcher struct {
	clock clock.PassiveClock
	// namespace is the namespace of the tenant's Machines.
	namespace string
	informers cache.Informers
	reader    client.Reader
	tracer    *tracing.Tracer
}

// NewWatcher returns a Watcher that sends to the tracer.
func NewWatcher(tracer *tracing.Tracer, clk clock.PassiveClock, namespace string) *Watcher {
	return &Watcher{tracer: tracer, clock: clk, namespace: namespace}
}

func (w *Watcher) send(spans ...tracing.Span) {
	for _, span := range spans {
		span.Namespace = w.namespace
		w.tracer.Send(span)
	}
}

// Register adds the Watcher and its Tracer to the manager.
func (w *Watcher) Register(_ context.Context, mgr manager.Manager) error {
	w.informers, w.reader = mgr.GetCache(), mgr.GetClient()
	return w.tracer.AddTo(mgr, w)
}

// Start implements manager.Runnable.
func (w *Watcher) Start(ctx context.Context) error {
	for kind, handler := range map[client.Object]toolscache.ResourceEventHandler{
		&karpv1.NodeClaim{}: kube.OnUpdate(func(before, after *karpv1.NodeClaim) { w.send(claimSpans(before, after)...) }),
		&corev1.Pod{}: kube.OnUpdate(func(before, after *corev1.Pod) {
			if before.Spec.NodeName == "" && after.Spec.NodeName != "" {
				w.bound(ctx, after)
			}
		}),
	} {
		_, stop, err := kube.Watch(ctx, w.informers, kind, handler)
		if err != nil {
			return err
		}
		defer stop()
	}
	<-ctx.Done()
	return nil
}

// claimSpans returns the spans that have ended between two states of a NodeClaim. Each begins at the end of the last.
func claimSpans(before, after *karpv1.NodeClaim) []tracing.Span {
	var ended []tracing.Span
	span := tracing.Span{Trace: after.UID, Parent: tracing.NodeClaimSpan, Start: after.CreationTimestamp.Time,
		Attributes: []attribute.KeyValue{attribute.String("nodeclaim", after.Name),
			attribute.String("nodepool", after.Labels[karpv1.NodePoolLabelKey])}}
	for _, step := range []struct{ name, condition string }{
		{"Launch", karpv1.ConditionTypeLaunched}, {"Register", karpv1.ConditionTypeRegistered}, {"Initialize", karpv1.ConditionTypeInitialized},
	} {
		condition, began := conditions.Began(before.Status.Conditions, after.Status.Conditions, step.condition)
		span.Name, span.End = step.name, condition.LastTransitionTime.Time
		if began {
			ended = append(ended, span)
		}
		if condition.Status == metav1.ConditionTrue {
			span.Start = span.End
		}
		if began && step.condition == karpv1.ConditionTypeInitialized {
			span.Name, span.Parent, span.Start = tracing.NodeClaimSpan, "", after.CreationTimestamp.Time
			ended = append(ended, span)
		}
	}
	return ended
}

// bound sends the wait of a pod that was bound to the node of a NodeClaim, if the pod waited for that node.
func (w *Watcher) bound(ctx context.Context, pod *corev1.Pod) {
	node, claims := &corev1.Node{}, &karpv1.NodeClaimList{}
	found, err := kube.Find(ctx, w.reader, client.ObjectKey{Name: pod.Spec.NodeName}, node)
	if err == nil && found && node.Spec.ProviderID != "" {
		err = w.reader.List(ctx, claims, client.MatchingFields{"status.providerID": node.Spec.ProviderID}, client.UnsafeDisableDeepCopy)
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "Looking for the NodeClaim of a pod, for its trace", "Pod", client.ObjectKeyFromObject(pod))
		return
	}
	for i := range claims.Items {
		if span, waited := podSpan(pod, &claims.Items[i], w.clock); waited {
			w.send(span)
		}
	}
}

// podSpan returns the wait of a pod for the node of a NodeClaim. Pods of DaemonSets do not wait for a node: they are
// made for it. Nor do pods that were created once the node was ready for them.
func podSpan(pod *corev1.Pod, claim *karpv1.NodeClaim, clk clock.PassiveClock) (span tracing.Span, waited bool) {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return span, false
	}
	initialized := conditions.Find(claim.Status.Conditions, karpv1.ConditionTypeInitialized)
	if initialized.Status == metav1.ConditionTrue && initialized.LastTransitionTime.Before(&pod.CreationTimestamp) {
		return span, false
	}
	return tracing.Span{
		Trace: claim.UID, Name: "Pod " + pod.Namespace + "/" + pod.Name, Parent: tracing.NodeClaimSpan,
		Start: pod.CreationTimestamp.Time, End: clk.Now(),
		Attributes: []attribute.KeyValue{attribute.String("k8s.namespace.name", pod.Namespace), attribute.String("k8s.pod.name", pod.Name),
			attribute.String("k8s.node.name", pod.Spec.NodeName)},
	}, true
}
