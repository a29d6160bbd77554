// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestMetrics: dashboards of other providers find the types that the tenant may have, and no series of one that is gone.
func TestMetrics(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	foreign := newNodeType("foreign-" + f.namespace) // the tenant is not allowed this one
	written := foreign.Status
	f.create(foreign)
	foreign.Status = written
	f.updateStatus(foreign)
	show := func(what, want string) {
		t.Helper()
		f.eventually(what, func() error {
			return testutil.CollectAndCompare(NewMetrics(f.CloudProvider), strings.NewReader(strings.ReplaceAll(want, "TYPE_", f.nodeType)),
				"karpenter_cloudprovider_instance_type_cpu_cores", "karpenter_cloudprovider_instance_type_offering_available",
				"karpenter_cloudprovider_instance_type_offering_price_estimate")
		})
	}
	const sizeAndPrice = `
# HELP karpenter_cloudprovider_instance_type_cpu_cores CPUs of an instance type.
# TYPE karpenter_cloudprovider_instance_type_cpu_cores gauge
karpenter_cloudprovider_instance_type_cpu_cores{instance_type="TYPE_"} 64
# HELP karpenter_cloudprovider_instance_type_offering_price_estimate Cost of a server, relative and without a unit, by instance type, capacity type and zone.
# TYPE karpenter_cloudprovider_instance_type_offering_price_estimate gauge
karpenter_cloudprovider_instance_type_offering_price_estimate{capacity_type="reserved",instance_type="TYPE_",zone="dc1"} 41741
# HELP karpenter_cloudprovider_instance_type_offering_available Whether the tenant could have a server now (1 or 0), by instance type, capacity type and zone.
# TYPE karpenter_cloudprovider_instance_type_offering_available gauge
karpenter_cloudprovider_instance_type_offering_available{capacity_type="reserved",instance_type="TYPE_",zone="dc1"} `
	show("the type with free servers", sizeAndPrice+"1\n")

	nodeType := &v1alpha1.NodeType{}
	if err := environment.Client.Get(f.ctx, types.NamespacedName{Name: f.nodeType}, nodeType); err != nil {
		t.Fatal(err)
	}
	nodeType.Status.Capacity.Available, nodeType.Status.Domains = 0, nil
	for i := range nodeType.Status.Zones {
		nodeType.Status.Zones[i].Available = 0
	}
	f.updateStatus(nodeType)
	show("the type without a free server", sizeAndPrice+"0\n")

	if err := environment.Client.Delete(f.ctx, nodeType); err != nil {
		t.Fatal(err)
	}
	show("no series of a type that is gone", "")
}
