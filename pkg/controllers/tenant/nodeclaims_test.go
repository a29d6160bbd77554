// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/garbagecollection"

	"github.com/awslabs/operatorpkg/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

type silent struct{}

func (silent) Publish(...events.Event) {}

// TestNodeClaimWithoutMachine: a NodeClaim is deleted after its Machine was deleted by an operator, and never because a
// Machine is missing in a cache.
func TestNodeClaimWithoutMachine(t *testing.T) {
	const providerID = "metal3://metal3/server-1/gpu-1"
	deleting := func(m *v1alpha1.Machine) {
		now := metav1.Now()
		m.DeletionTimestamp, m.Finalizers = &now, []string{v1alpha1.MachineFinalizer}
	}
	registered := func(c *karpv1.NodeClaim) {
		c.Status.Conditions = []status.Condition{{Type: karpv1.ConditionTypeRegistered, Status: metav1.ConditionTrue}}
	}
	down := apierrors.NewServiceUnavailable("down")
	notServed := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{Resource: "machines"}, "gpu-1",
		"404 page not found", 0, true)
	gone := apierrors.NewNotFound(schema.GroupResource{}, "gpu-1")
	for name, tc := range map[string]struct {
		reason    string
		nodeClaim func(*karpv1.NodeClaim)
		machine   func(*v1alpha1.Machine)
		noMachine bool
		// cached and live are the errors that reads of the Machine have, from the cache and from the API server.
		cached, live error
		deleted      bool
		fails        bool
	}{
		"There":          {reason: "all is well"},
		"Deleting":       {reason: "the server is on its way back", machine: deleting, deleted: true},
		"DeletingNode":   {reason: "the node has to be drained, while it can be", machine: deleting, nodeClaim: registered, deleted: true},
		"Gone":           {reason: "no node will ever come of it", noMachine: true, deleted: true},
		"GoneUnderANode": {reason: "the node may be well: a management cluster is restored nodes first", noMachine: true, nodeClaim: registered},
		"OtherMachine": {reason: "a Machine of that name on another server is another", deleted: true,
			machine: func(m *v1alpha1.Machine) { m.Status.ProviderID = "metal3://metal3/server-2/gpu-1" }},
		"NotLaunched": {reason: "its Machine is still to come", noMachine: true,
			nodeClaim: func(c *karpv1.NodeClaim) { c.Status.ProviderID = "" }},
		"Foreign": {reason: "it belongs to another provider", noMachine: true,
			nodeClaim: func(c *karpv1.NodeClaim) { c.Status.ProviderID = "kwok://gpu-1" }},
		"StaleCache": {reason: "the cache has not seen the Machine yet", cached: gone},
		"CacheDown":  {reason: "an error is no answer", cached: down, fails: true},
		"APIDown":    {reason: "an error is no answer", cached: gone, live: down, fails: true},
		"NotServed":  {reason: "a server that does not know the kind knows nothing of the object", cached: gone, live: notServed, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", UID: "claim"}}
			nodeClaim.Status.ProviderID = providerID
			machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "gpu-1"}}
			machine.Status.ProviderID = providerID
			if tc.nodeClaim != nil {
				tc.nodeClaim(nodeClaim)
			}
			if tc.machine != nil {
				tc.machine(machine)
			}
			builder := fake.NewClientBuilder().WithScheme(environment.Scheme).WithObjects(nodeClaim)
			if !tc.noMachine {
				builder = builder.WithObjects(machine)
			}
			api := builder.Build()
			failing := func(err error) client.Client {
				return interceptor.NewClient(api,
					interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object,
						options ...client.GetOption) error {
						if err != nil {
							return err
						}
						return c.Get(ctx, key, object, options...)
					}})
			}
			c := garbagecollection.NewNodeClaimController(tenant.Clusters{
				TenantCluster: types.NamespacedName{Namespace: "tenant-a", Name: "blue"},
				Tenant:        tenant.Cluster{Client: api, Live: api},
				Management:    tenant.Cluster{Client: failing(tc.cached), Live: failing(tc.live)},
			}, silent{})
			if _, err := c.Reconcile(t.Context(), nodeClaim.DeepCopy()); (err != nil) != tc.fails {
				t.Errorf("%s: error %v, want one: %v", tc.reason, err, tc.fails)
			}
			err := api.Get(t.Context(), client.ObjectKeyFromObject(nodeClaim), nodeClaim)
			if deleted := apierrors.IsNotFound(err); deleted != tc.deleted {
				t.Errorf("%s: deleted %v, want %v (%v)", tc.reason, deleted, tc.deleted, errors.Unwrap(err))
			}
		})
	}
}
