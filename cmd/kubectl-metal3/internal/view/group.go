// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/gangs"
)

// groups are the kinds that Explain finds by their pods, with their names in texts.
var groups = map[string]string{"podgroup": "PodGroup", "job": "Job", "jobset": "JobSet"}

// IsGroup reports whether Explain finds a kind by its pods. Explain then needs ReadEvents.
func IsGroup(kind string) bool { return groups[kind] != "" }

// GroupOf returns the name of the group of this kind that a pod belongs to, empty if there is none.
func GroupOf(kind string, pod *corev1.Pod) string {
	switch kind {
	case "podgroup":
		return gangs.PodGroupOf(pod)
	case "job":
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == groups[kind] {
			return owner.Name
		}
	case "jobset":
		return pod.Labels[gangs.JobSetLabelKey]
	}
	return ""
}

// podReasons are the reasons of the provider's events on pods without a server. Some events announce a server that
// comes by itself.
var podReasons = map[string]Verdict{
	explain.ReasonGangIncomplete: Waiting, explain.ReasonWaitingForNodeClaim: Waiting, explain.ReasonNoServerAvailable: Wrong,
	explain.ReasonInsufficientDomainCapacity: Wrong, explain.ReasonQuotaReached: Wrong, explain.ReasonServerRefused: Wrong,
	explain.ReasonNoNodeTypeFits: Wrong, explain.ReasonNoCapacityType: Wrong,
}

// ReadEvents adds the provider's events about pods without a server, in the namespace of the scope.
func (s *Snapshot) ReadEvents(ctx context.Context, tenants []client.Reader, scope Scope) error {
	err := s.readTenants(ctx, tenants, scope, kindOf(tenantCluster, "", "events", func() client.ObjectList { return &corev1.EventList{} },
		func(s *Snapshot) *[]corev1.Event { return &s.Tenant.Events }, nothingElse[corev1.Event]).listIn(pods))
	for _, part := range s.PerTenant() {
		part.Tenant.Events = slices.DeleteFunc(part.Tenant.Events, func(event corev1.Event) bool {
			return event.InvolvedObject.Kind != "Pod" || podReasons[event.Reason] == ""
		})
	}
	return err
}

// explainGroup says which servers the pods of a group have, or quotes the provider's last event about their gang. It
// finds the servers by their NodeClaims, which name the gangs that each is for.
func (f *Fleet) explainGroup(kind, name string) (Cause, error) {
	namespace, bare, qualified := strings.Cut(name, "/")
	if !qualified {
		namespace, bare = "", name
	}
	var members []*corev1.Pod
	namespaces, ids, uids := sets.New[string](), sets.New[string](), sets.New[string]()
	running := 0
	for i := range f.snapshot.Tenant.Pods {
		member := &f.snapshot.Tenant.Pods[i]
		if GroupOf(kind, member) != bare || namespace != "" && member.Namespace != namespace || pod.IsTerminal(member) {
			continue
		}
		members = append(members, member)
		namespaces.Insert(member.Namespace)
		ids.Insert(gangs.ID(member))
		uids.Insert(string(member.UID))
		if member.Spec.NodeName != "" {
			running++
		}
	}
	switch len(namespaces) {
	case 0:
		return Cause{}, fmt.Errorf("%s %q %w: no pod of it that has not ended is in the tenant cluster", groups[kind], name, errNotFound)
	case 1:
	default:
		return Cause{}, fmt.Errorf("there are %d of the name %q, in the namespaces %s: name it as NAMESPACE/%s", len(namespaces), name,
			strings.Join(sets.List(namespaces), ", "), bare)
	}
	cause := Cause{Text: fmt.Sprintf("%s %s/%s%s: %d of its %d pods have a node", groups[kind], members[0].Namespace, bare, f.ofTenant,
		running, len(members)), Verdict: Waiting}
	if running == len(members) {
		cause.Verdict = Good
	}
	var claims []*karpv1.NodeClaim
	for i := range f.snapshot.Tenant.NodeClaims {
		claim := &f.snapshot.Tenant.NodeClaims[i]
		if slices.ContainsFunc(v1alpha1.GangsOf(claim), func(gang v1alpha1.MachineGang) bool { return ids.Has(gang.Name) }) {
			claims = append(claims, claim)
		}
	}
	event := f.lastEvent(uids, claims)
	switch {
	case running == len(members):
	case event != nil:
		cause = withCause(cause, Cause{Text: fmt.Sprintf("the provider says, %s ago: %s", ago(f.Now(), LastSeen(event)),
			quoted(event.Reason+": "+event.Message)), Verdict: podReasons[event.Reason]})
	case len(claims) == 0:
		pending := slices.IndexFunc(members, func(member *corev1.Pod) bool { return member.Spec.NodeName == "" })
		cause = withCause(cause, f.explainPod(members[pending]))
	}
	for _, because := range f.claimCauses(claims) {
		cause = withCause(cause, because)
	}
	return cause, nil
}

// lastEvent returns the last event on one of the pods, nil if a NodeClaim was created for them since.
func (f *Fleet) lastEvent(pods sets.Set[string], claims []*karpv1.NodeClaim) (last *corev1.Event) {
	for i := range f.snapshot.Tenant.Events {
		event := &f.snapshot.Tenant.Events[i]
		if pods.Has(string(event.InvolvedObject.UID)) && (last == nil || LastSeen(event).After(LastSeen(last))) {
			last = event
		}
	}
	if last != nil && slices.ContainsFunc(claims, func(claim *karpv1.NodeClaim) bool {
		return !claim.CreationTimestamp.Time.Before(LastSeen(last))
	}) {
		return nil
	}
	return last
}

// LastSeen returns when an event was last published.
func LastSeen(event *corev1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	if !event.LastTimestamp.IsZero() {
		return event.LastTimestamp.Time
	}
	return event.EventTime.Time
}
