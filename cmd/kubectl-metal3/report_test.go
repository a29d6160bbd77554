// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/usage"
)

// usages are the record of the fleet.
func usages() []v1alpha1.HostUsage {
	use := func(namespace, machine, tenant, nodeType string, cost int64, start, hours time.Duration) v1alpha1.HostUse {
		use := v1alpha1.HostUse{
			Machine:       v1alpha1.MachineReference{Namespace: namespace, Name: machine, UID: types.UID(machine)},
			TenantCluster: tenant, NodeType: nodeType, Cost: ptr.To(cost), Start: usage.Time(now.Add(-start)),
		}
		if hours > 0 {
			use.End = ptr.To(usage.Time(now.Add(hours - start)))
		}
		return use
	}
	record := func(name string, uses ...v1alpha1.HostUse) v1alpha1.HostUsage {
		record := v1alpha1.HostUsage{Spec: v1alpha1.HostUsageSpec{Uses: uses}}
		record.Namespace, record.Name = "metal3-system", name
		return record
	}
	const day = 24 * time.Hour
	busy := record("server-08", use("globex", "batch-1", "globex", "h100-8x", 80000, 20*day, 2*day),
		use("acme", "default-late", "acme", "h100-8x", 82496, 40*time.Minute, 0))
	busy.Spec.RemovedUntil = ptr.To(usage.Time(now.Add(-21 * day)))
	tested := record("server-16", use("lab", "bench", "", "cpu", 300, 3*day, 12*time.Hour))
	tested.Spec.Folded = []v1alpha1.FoldedUses{{Namespace: "lab", NodeType: "cpu", Count: 9, Start: usage.Time(now.Add(-5*day - time.Hour)),
		End: usage.Time(now.Add(-5 * day)), Microseconds: (6 * time.Minute).Microseconds(), Cost: ptr.To(resource.MustParse("30"))}}
	return []v1alpha1.HostUsage{
		record("server-07", use("acme", "default-aaaaa", "acme", "h100-8x", 82496, 50*day, 30*day),
			use("globex", "batch-2", "globex", "h100-8x", 80000, 19*day, 36*time.Hour),
			use("acme", "default-x7f2k", "acme", "h100-8x", 82496, 40*time.Minute, 0)),
		busy,
		tested,
	}
}

// TestReportReadsOnlyTheRecord: it lists no other kind, and says what is missing in one sentence.
func TestReportReadsOnlyTheRecord(t *testing.T) {
	resource := schema.GroupResource{Group: v1alpha1.Group, Resource: "hostusages"}
	for name, tc := range map[string]struct {
		reason string
		err    error
		code   int
		want   string
	}{
		"Allowed": {reason: "it has all that it needs", want: "globex/globex"},
		"Forbidden": {reason: "the rule is named", err: apierrors.NewForbidden(resource, "", errors.New("no")), code: exitError,
			want: "you may not list hostusages.karpenter.metal3.io in the management cluster"},
		"NotInstalled": {reason: "a manager of an earlier version", err: &meta.NoKindMatchError{}, code: exitError,
			want: "the management cluster has no hostusages.karpenter.metal3.io: install its CRD"},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(view.Scheme())
			for _, record := range usages() {
				builder = builder.WithObjects(&record)
			}
			cluster := interceptor.NewClient(builder.Build(), interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if _, ok := list.(*v1alpha1.HostUsageList); !ok {
						t.Errorf("%s: it lists a %T", tc.reason, list)
					}
					if tc.err != nil {
						return tc.err
					}
					return c.List(ctx, list, options...)
				},
			})
			var stdout, stderr bytes.Buffer
			o := &options{IOStreams: genericiooptions.IOStreams{Out: &stdout, ErrOut: &stderr}, management: genericclioptions.NewConfigFlags(true),
				connect: func(*genericclioptions.ConfigFlags, string) (client.WithWatch, error) { return cluster, nil }}
			command := o.command()
			command.SetArgs([]string{"report", "--from", now.AddDate(0, 0, -100).Format(time.RFC3339)})
			err := command.ExecuteContext(t.Context())
			output := stdout.String()
			if err != nil {
				output = err.Error()
			}
			if (err != nil) != (tc.code != 0) || !strings.Contains(output, tc.want) {
				t.Errorf("%s: it says %q, want %q", tc.reason, output, tc.want)
			}
		})
	}
}
