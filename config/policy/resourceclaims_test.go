// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/tenantcluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	drapolicy "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

const (
	claims    = "resourceclaims"
	templates = "resourceclaimtemplates"
	// kubernetes generates claims from templates, and vcluster is a syncer that copies claims itself.
	kubernetes = "system:serviceaccount:kube-system:resourceclaim-controller"
	vcluster   = "system:serviceaccount:blue:vc-blue"
)

// exactly and firstOf are requests for classes, the second for any of several.
func exactly(class string) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}
}

func firstOf(classes ...string) resourcev1.DeviceRequest {
	request := resourcev1.DeviceRequest{Name: "r"}
	for i, class := range classes {
		request.FirstAvailable = append(request.FirstAvailable, resourcev1.DeviceSubRequest{Name: fmt.Sprintf("a%d", i), DeviceClassName: class})
	}
	return request
}

// asking is the spec of a claim with these requests.
func asking(requests ...resourcev1.DeviceRequest) resourcev1.ResourceClaimSpec {
	for i := range requests {
		requests[i].Name = fmt.Sprintf("r%d", i)
	}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}}
}

// configured is the spec with opaque configuration for a driver.
func configured(spec resourcev1.ResourceClaimSpec, driver string) resourcev1.ResourceClaimSpec {
	config := resourcev1.DeviceClaimConfiguration{}
	config.Opaque = &resourcev1.OpaqueDeviceConfiguration{Driver: driver}
	config.Opaque.Parameters.Raw = []byte(`{}`)
	spec.Devices.Config = append(spec.Devices.Config, config)
	return spec
}

func administrative(class string) resourcev1.ResourceClaimSpec {
	spec := asking(exactly(class))
	spec.Devices.Requests[0].Exactly.AdminAccess = ptr.To(true)
	return spec
}

// copyOf is what a provider creates on the host.
func copyOf(kind, namespace string, spec resourcev1.ResourceClaimSpec) client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, GenerateName: "v", Labels: map[string]string{names.MarkerLabel: "blue"}}
	if kind == templates {
		return &resourcev1.ResourceClaimTemplate{ObjectMeta: meta, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec}}
	}
	return &resourcev1.ResourceClaim{ObjectMeta: meta, Spec: spec}
}

func createAll(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := environment.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

func deviceClass(t *testing.T, name string, labels map[string]string) *resourcev1.DeviceClass {
	t.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	createAll(t, class)
	t.Cleanup(func() {
		if err := environment.Client.Delete(context.Background(), class); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	return class
}

// syncing is a TenantCluster with these settings of DeviceClasses.
func syncing(namespace, name string, classes v1alpha1.DeviceClassSync, drivers ...string) *v1alpha1.TenantCluster {
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	tenant.Spec.APIServerEndpoint = "tenant.example.com:6443"
	tenant.Spec.Sync.FromHost.DeviceClasses = classes
	tenant.Spec.Sync.ToHost.ResourceClaims.Enabled = true
	tenant.Spec.Sync.ToHost.OpaqueConfigDrivers = drivers
	return tenant
}

func selecting(labels map[string]string) v1alpha1.DeviceClassSync {
	return v1alpha1.DeviceClassSync{SyncSwitch: v1alpha1.SyncSwitch{Enabled: true}, Selector: &metav1.LabelSelector{MatchLabels: labels}}
}

// manage has the manager write what the TenantClusters of a namespace allow.
func manage(t *testing.T, namespace string) {
	t.Helper()
	controller := tenantcluster.NewController(environment.Client, environment.Client, events.NewFakeRecorder(100), clock.RealClock{})
	tenants := &v1alpha1.TenantClusterList{}
	if err := environment.Client.List(t.Context(), tenants, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range tenants.Items {
		for range 2 { // the first adds the finalizer
			if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&tenant)}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestResourceClaims: with the token of a tenant's provider nobody creates a claim or template that asks for more than the TenantClusters
// of its namespace allow together, in any version. What others create is judged in no namespace.
func TestResourceClaims(t *testing.T) {
	hostNamespace(t, "metal3-system")
	namespace, shared, empty := environment.Namespace(t), environment.Namespace(t), environment.Namespace(t)
	for _, namespace := range []string{namespace, shared, empty} {
		environment.Grant(t, namespace, "provider-dra-management.yaml", "manager.yaml")
	}
	environment.Give(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "claims-of-others"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kubernetes},
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: vcluster}}})
	label := &corev1.Namespace{}
	if err := environment.Client.Get(t.Context(), client.ObjectKey{Name: namespace}, label); err != nil {
		t.Fatal(err)
	}
	label.Labels["resource.kubernetes.io/admin-access"] = "true" // the platform's own claims in that namespace may have it
	if err := environment.Client.Update(t.Context(), label); err != nil {
		t.Fatal(err)
	}
	deviceClass(t, "slice", map[string]string{"kind": "slice"})
	deviceClass(t, "slice-2", map[string]string{"kind": "slice"})
	deviceClass(t, "whole", map[string]string{"kind": "whole"})
	deviceClass(t, "other", map[string]string{"kind": "other"})
	gone := deviceClass(t, "gone", map[string]string{"kind": "slice"})
	createAll(t, syncing(namespace, "blue", selecting(map[string]string{"kind": "slice"}), "gpu.example.com"),
		syncing(shared, "blue", selecting(map[string]string{"kind": "slice"}), "gpu.example.com"),
		syncing(shared, "green", selecting(map[string]string{"kind": "whole"}), "nic.example.com"),
		syncing(shared, "red", v1alpha1.DeviceClassSync{}))
	policies, err := load("resourceclaims.yaml", Options{}.functions())
	if err != nil {
		t.Fatal(err)
	}
	type attempt struct {
		reason    string
		namespace string // empty: that of one TenantCluster
		user      string // empty: the provider
		spec      resourcev1.ResourceClaimSpec
		refuse    string // empty: admitted
	}
	cases := map[string]attempt{
		"Selected":  {reason: "what the sync creates", spec: asking(exactly("slice"))},
		"All":       {reason: "each is selected", spec: asking(exactly("slice"), firstOf("slice", "slice-2"), exactly("slice-2"))},
		"NoRequest": {reason: "it asks for no device", spec: asking()},
		"Exactly":   {reason: "another tenant's", spec: asking(exactly("whole")), refuse: "DeviceClass whole is not among"},
		"Second":    {reason: "one is enough", spec: asking(exactly("slice"), exactly("whole")), refuse: "DeviceClass whole is"},
		"Alternative": {reason: "the scheduler may take any of them", spec: asking(firstOf("slice", "whole", "slice-2", "other")),
			refuse: "DeviceClass whole, other is"},
		"LastOfAll": {reason: "the most that a claim can ask for", refuse: "DeviceClass whole is", spec: asking(slices.Concat(
			slices.Repeat([]resourcev1.DeviceRequest{firstOf("slice", "slice", "slice", "slice", "slice", "slice", "slice", "slice")}, 31),
			[]resourcev1.DeviceRequest{firstOf("slice", "slice", "slice", "slice", "slice", "slice", "slice", "whole")})...)},
		"Unknown": {reason: "it may exist tomorrow", spec: asking(exactly("tomorrow")), refuse: "DeviceClass tomorrow is"},
		"Deleted": {reason: "who makes it anew may label it otherwise", spec: asking(exactly("gone")), refuse: "DeviceClass gone is"},
		"Prefix":  {reason: "names are compared as a whole", spec: asking(exactly("slic")), refuse: "DeviceClass slic is"},
		"Driver":  {reason: "the TenantCluster names it", spec: configured(asking(exactly("slice")), "gpu.example.com")},
		"Opaque": {reason: "the driver parses it on the host", spec: configured(asking(exactly("slice")), "nic.example.com"),
			refuse: "driver nic.example.com is"},
		"OpaqueBare":    {reason: "also without a request", spec: configured(asking(), "nic.example.com"), refuse: "driver nic.example.com is"},
		"Admin":         {reason: "devices that others use", spec: administrative("slice"), refuse: "adminAccess"},
		"AdminOfOthers": {reason: "the platform's own claim", user: vcluster, spec: administrative("whole")},
		"Account": {reason: "a service account of the chart", user: "system:serviceaccount:blue:karpenter-metal3-provider-blue",
			spec: asking(exactly("whole")), refuse: "DeviceClass whole is"},
		"VCluster":  {reason: "a vCluster that syncs by itself", user: vcluster, spec: asking(exactly("whole"))},
		"Generated": {reason: "a claim of a template", user: kubernetes, spec: asking(exactly("whole"))},
		"Shared":    {reason: "tenants of one namespace trust each other", namespace: shared, spec: asking(exactly("slice"), exactly("whole"))},
		"SharedDrivers": {reason: "as with classes", namespace: shared,
			spec: configured(configured(asking(exactly("whole")), "gpu.example.com"), "nic.example.com")},
		"SharedOther": {reason: "none of them selects it", namespace: shared, spec: asking(exactly("other")), refuse: "DeviceClass other is"},
		// The API server cannot tell who asks when a TenantCluster is missing.
		"NoTenantCluster": {reason: "the platform takes the rights away", namespace: empty, spec: asking(exactly("whole"))},
		"OthersNoTenantCluster": {reason: "a vCluster of another platform", namespace: empty, user: vcluster,
			spec: asking(exactly("whole"))},
	}
	environment.Give(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "account"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "karpenter-metal3-provider-dra"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: cases["Account"].user}}})
	create := func(t *testing.T, kind string, tc attempt) error {
		t.Helper()
		if tc.namespace == "" {
			tc.namespace = namespace
		}
		if tc.user == "" {
			tc.user = ProviderUser
		}
		return environment.As(t, tc.user).Create(t.Context(), copyOf(kind, tc.namespace, tc.spec), client.DryRunAll)
	}
	each := func(try func(t *testing.T, kind string, tc attempt)) {
		for name, tc := range cases {
			for _, kind := range []string{claims, templates} {
				t.Run(name+"/"+kind, func(t *testing.T) { try(t, kind, tc) })
			}
		}
	}
	each(func(t *testing.T, kind string, tc attempt) {
		if err := create(t, kind, tc); err != nil {
			t.Errorf("without the policy there is nothing to refuse: %v", err)
		}
	})
	if err := environment.Client.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	kept := copyOf(claims, namespace, asking(exactly("slice")))
	createAll(t, kept)
	enforce(t, policies, func() error { return create(t, claims, cases["Selected"]) }) // nothing is allowed before the manager says so
	manage(t, namespace)
	manage(t, shared)
	for _, tc := range []attempt{cases["Driver"], cases["Shared"], cases["SharedDrivers"]} {
		poll.Eventually(t, "the API server knows what the manager wrote", func(context.Context) error { return create(t, claims, tc) })
	}
	each(func(t *testing.T, kind string, tc attempt) {
		judge(t, tc.reason, create(t, kind, tc), tc.refuse == "", tc.refuse)
	})

	provider := environment.As(t, ProviderUser)
	t.Run("Beta", func(t *testing.T) {
		for class, want := range map[string]string{"slice": "", "whole": "DeviceClass whole is"} {
			old := &resourcev1beta1.ResourceClaim{ObjectMeta: copyOf(claims, namespace, asking()).(*resourcev1.ResourceClaim).ObjectMeta}
			old.Spec.Devices.Requests = []resourcev1beta1.DeviceRequest{{Name: "r", DeviceClassName: class}}
			judge(t, "the requests of v1beta1 are flat", provider.Create(t.Context(), old, client.DryRunAll), want == "", want)
		}
	})
	t.Run("Update", func(t *testing.T) {
		changed := kept.DeepCopyObject().(*resourcev1.ResourceClaim)
		changed.Spec = asking(exactly("whole"))
		if err := provider.Patch(t.Context(), changed, client.MergeFrom(kept), client.DryRunAll); !apierrors.IsInvalid(err) {
			t.Errorf("a claim that was admitted asks for another class: %v", err)
		}
	})
	t.Run("NotSelectedAnyMore", func(t *testing.T) {
		tenant := &v1alpha1.TenantCluster{}
		if err := environment.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "blue"}, tenant); err != nil {
			t.Fatal(err)
		}
		tenant.Spec.Sync.FromHost.DeviceClasses.Selector.MatchLabels["kind"] = "whole"
		if err := environment.Client.Update(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
		manage(t, namespace)
		poll.Eventually(t, "the class is refused", func(context.Context) error {
			if err := create(t, claims, cases["Selected"]); !apierrors.IsForbidden(err) {
				return fmt.Errorf("it is not: %w", err)
			}
			return nil
		})
		changed := kept.DeepCopyObject().(client.Object)
		changed.SetAnnotations(map[string]string{"example.com/x": "y"})
		if err := provider.Patch(t.Context(), changed, client.MergeFrom(kept)); err != nil {
			t.Errorf("the provider cannot keep its claim: %v", err)
		}
		if err := provider.Delete(t.Context(), changed); err != nil {
			t.Errorf("the provider cannot delete its claim: %v", err)
		}
	})
	t.Run("Broken", func(t *testing.T) {
		broken, err := load("resourceclaims.yaml", Options{}.functions())
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range broken {
			object.SetName("broken")
			switch object := object.(type) {
			case *admissionregistrationv1.ValidatingAdmissionPolicy:
				object.Spec.ParamKind.Kind = "NotDefined" // as after the definition of TenantClusters is deleted, or before it is found
			case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
				object.Spec.PolicyName = "broken"
			}
		}
		t.Cleanup(func() {
			for _, object := range broken {
				if err := environment.Client.Delete(context.Background(), object); err != nil {
					t.Error(err)
				}
			}
		})
		createAll(t, broken...)
		poll.Eventually(t, "it refuses what it cannot judge", func(context.Context) error {
			if err := create(t, claims, cases["NoRequest"]); err == nil || !strings.Contains(err.Error(), "'broken' denied") {
				return fmt.Errorf("it does not: %w", err)
			}
			return nil
		})
		platforms := copyOf(claims, namespace, asking(exactly("whole")))
		platforms.SetLabels(nil)
		judge(t, "the platform's own claims do not depend on it",
			environment.As(t, vcluster).Create(t.Context(), platforms, client.DryRunAll), true)
	})
	t.Run("Random", func(t *testing.T) { tryRandomClaims(t) })
}

// tryRandomClaims compares the policy with what the provider itself checks, for random TenantClusters of one namespace.
func tryRandomClaims(t *testing.T) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	keys, values := []string{"a", "b"}, []string{"1", "2", "3"}
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	var all []string
	for i := range 12 {
		labels := map[string]string{}
		for _, key := range keys {
			if random.IntN(3) > 0 {
				labels[key] = pick(values)
			}
		}
		all = append(all, deviceClass(t, fmt.Sprintf("random-%d", i), labels).Name)
	}
	operators := []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists,
		metav1.LabelSelectorOpDoesNotExist, "Between"}
	admitted, refused := 0, 0
	for range 12 {
		namespace := environment.Namespace(t)
		environment.Grant(t, namespace, "provider-dra-management.yaml")
		var tenants []*v1alpha1.TenantCluster
		for i := range 1 + random.IntN(3) {
			sync := v1alpha1.DeviceClassSync{SyncSwitch: v1alpha1.SyncSwitch{Enabled: random.IntN(4) > 0}}
			if random.IntN(6) > 0 {
				sync.Selector = &metav1.LabelSelector{}
			}
			for range random.IntN(3) * len(keys) / 2 {
				if sync.Selector == nil {
					break
				}
				requirement := metav1.LabelSelectorRequirement{Key: pick(keys), Operator: operators[random.IntN(len(operators))]}
				if requirement.Operator == metav1.LabelSelectorOpIn || requirement.Operator == metav1.LabelSelectorOpNotIn {
					requirement.Values = []string{pick(values)}
				}
				sync.Selector.MatchExpressions = append(sync.Selector.MatchExpressions, requirement)
			}
			tenant := syncing(namespace, fmt.Sprintf("t%d", i), sync)
			createAll(t, tenant)
			tenants = append(tenants, tenant)
		}
		manage(t, namespace)
		allowed := func(ctx context.Context, name string) bool {
			return slices.ContainsFunc(tenants, func(tenant *v1alpha1.TenantCluster) bool {
				spec := asking(exactly(name))
				class, err := drapolicy.Of(tenant).NotAllowed(ctx, environment.Client, &spec)
				return err == nil && class == ""
			})
		}
		for _, name := range all {
			if allowed(t.Context(), name) {
				admitted++
			} else {
				refused++
			}
		}
		poll.Eventually(t, "the policy is what the provider checks", func(ctx context.Context) error {
			var wrong []string
			for _, name := range all {
				want := allowed(ctx, name)
				err := environment.As(t, ProviderUser).Create(ctx, copyOf(claims, namespace, asking(exactly(name))), client.DryRunAll)
				if want != (err == nil) || err != nil && !apierrors.IsForbidden(err) {
					wrong = append(wrong, fmt.Sprintf("%s: want admitted %t, got %v", name, want, err))
				}
			}
			if len(wrong) > 0 {
				return fmt.Errorf("TenantClusters %+v: %s", tenants[0].Spec.Sync.FromHost, strings.Join(wrong, "; "))
			}
			return nil
		})
	}
	if admitted == 0 || refused == 0 {
		t.Errorf("%d attempts are to be admitted and %d to be refused: choose another seed", admitted, refused)
	}
}
