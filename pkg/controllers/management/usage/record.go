// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage keeps the record of who had which server when: one HostUsage for each BareMetalHost.
//
// The start of a use is part of the claim: the write that makes a Machine the consumer of a host records when, for whom
// and at which cost. The controller of this package copies it into the record a few minutes later. Record.End writes
// the end before the claim is removed, and no server is given back without it. If a process dies between two of these
// writes, the next one finds the claim on the host, and the record has it or not. The controller also ends the use of a
// host that is gone, or whose claim was removed by hand.
//
// Each write of a record is a compare-and-swap based on live reads, first of the record and then of the host. If a use
// begins or ends between the two reads, that writes the record, and the compare-and-swap fails.
package usage

import (
	"context"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// DefaultRetention is how long uses are kept after their end.
const DefaultRetention = 90 * 24 * time.Hour

// Record writes HostUsages. The zero Record writes none.
type Record struct {
	// Client writes, and reads Machines and TenantClusters from a cache.
	Client client.Client
	// Live reads from the API server, past every cache.
	Live  client.Reader
	Clock clock.PassiveClock
	// Retention is how long uses are kept after their end. Zero means no record.
	Retention time.Duration
	// Written counts the bytes of written records; it may be nil.
	Written prometheus.Counter
}

// Claim returns the annotations for a host that the Machine is about to claim.
func (r Record) Claim(ctx context.Context, machine *v1alpha1.Machine) (map[string]string, error) {
	if r.Retention == 0 {
		return nil, nil
	}
	tenant, err := r.tenantOf(ctx, machine)
	claim := usage.Claim{Machine: machine.ClaimUID(), Time: usage.Time(r.Clock.Now()), TenantCluster: tenant, Cost: machine.Status.Cost}
	return map[string]string{v1alpha1.ClaimAnnotationKey: claim.String()}, err
}

// End ends the use of a host whose claim is about to be removed.
func (r Record) End(ctx context.Context, host *bmov1alpha1.BareMetalHost) error {
	if r.Retention == 0 {
		return nil
	}
	key, live := client.ObjectKeyFromObject(host), &bmov1alpha1.BareMetalHost{}
	record, err := r.read(ctx, key)
	if err == nil {
		_, err = kube.Find(ctx, r.Live, key, live)
	}
	if err != nil {
		return err
	}
	if !usage.Same(usage.ClaimOn(host), usage.ClaimOn(live)) {
		return nil // another manager has removed the claim and recorded that: the caller's write fails with a conflict
	}
	claim, err := r.claimOn(ctx, live)
	if err != nil || claim == nil {
		return err
	}
	return r.write(ctx, key, record, usage.Next(record.Spec, usage.Observation{At: r.Clock.Now(), Claim: claim, Ending: true}, r.Retention))
}

// observe makes the record match the host. seen is a claim that was seen on the host before, or nil. It ends now,
// unless it still stands or is recorded.
func (r Record) observe(ctx context.Context, key types.NamespacedName, seen *v1alpha1.HostUse) error {
	record, err := r.read(ctx, key)
	if err != nil {
		return err
	}
	host := &bmov1alpha1.BareMetalHost{}
	found, err := kube.Find(ctx, r.Live, key, host)
	if err != nil {
		return err
	}
	claim, err := r.claimOn(ctx, host)
	if err != nil {
		return err
	}
	before, now := record.Spec, r.Clock.Now()
	if seen != nil && !usage.Has(before, seen) && !usage.Same(seen, claim) {
		lost := usage.Observation{At: usage.LostAt(before, seen, claim, now), Claim: seen, Ending: true}
		before = usage.Next(before, lost, r.Retention)
	}
	after := usage.Next(before, usage.Observation{At: now, Claim: claim}, r.Retention)
	if usage.IsEmpty(after) && !found && record.UID != "" {
		return r.delete(ctx, record)
	}
	return r.write(ctx, key, record, after)
}

// read reads the record from the API server, because the cache has only a part. It may be empty.
func (r Record) read(ctx context.Context, key types.NamespacedName) (*v1alpha1.HostUsage, error) {
	record := &v1alpha1.HostUsage{}
	_, err := kube.Find(ctx, r.Live, key, record)
	return record, err
}

func (r Record) write(ctx context.Context, key types.NamespacedName, record *v1alpha1.HostUsage, after v1alpha1.HostUsageSpec) error {
	if equality.Semantic.DeepEqual(record.Spec, after) {
		return nil
	}
	var err error
	if record.UID != "" {
		err = kube.Patch(ctx, r.Client, record, "recording the use in", func() { record.Spec = after })
	} else {
		err = r.Client.Create(ctx, &v1alpha1.HostUsage{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: after})
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // the record goes with its namespace, and must not keep the servers in it claimed
	case apierrors.IsNotFound(err): // a caller would take this error for a missing host
		return fmt.Errorf("recording the use of server %s: %v", key, err)
	case err != nil:
		return fmt.Errorf("recording the use of server %s, %w", key, err)
	}
	if r.Written != nil {
		r.Written.Add(float64(usage.Bytes(after)))
	}
	return nil
}

// delete deletes the record, if it has not changed since it was read.
func (r Record) delete(ctx context.Context, record *v1alpha1.HostUsage) error {
	err := r.Client.Delete(ctx, record, client.Preconditions{UID: ptr.To(record.UID), ResourceVersion: ptr.To(record.ResourceVersion)})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting HostUsage %s/%s, %w", record.Namespace, record.Name, err)
	}
	return nil
}

// claimOn is usage.ClaimOn, completed from the Machine if a manager without a record made the claim.
func (r Record) claimOn(ctx context.Context, host *bmov1alpha1.BareMetalHost) (*v1alpha1.HostUse, error) {
	claim := usage.ClaimOn(host)
	if claim == nil || !claim.Start.IsZero() {
		return claim, nil
	}
	machine, err := kube.FindMachine(ctx, r.Client, claim.Machine)
	if err != nil || machine == nil {
		return claim, err
	}
	if claimed := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionClaimed); claimed.Status == metav1.ConditionTrue {
		claim.Start = usage.Time(claimed.LastTransitionTime.Time)
	}
	claim.Cost = machine.Status.Cost
	claim.TenantCluster, err = r.tenantOf(ctx, machine)
	return claim, err
}

// tenantOf returns the name of the TenantCluster that a Machine is charged to, or "".
func (r Record) tenantOf(ctx context.Context, machine *v1alpha1.Machine) (string, error) {
	list := &v1alpha1.TenantClusterList{}
	if err := r.Client.List(ctx, list, client.InNamespace(machine.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing the TenantClusters of namespace %s, %w", machine.Namespace, err)
	}
	if tenant := quota.ChargedTo(machine, lo.ToSlicePtr(list.Items)); tenant != nil {
		return tenant.Name, nil
	}
	return "", nil
}
