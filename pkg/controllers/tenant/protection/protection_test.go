// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	configpolicy "github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/autonodes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

var environment env.Environment

func TestMain(m *testing.M) { env.Main(m, &environment) }

// warnings collects what the API server warns of.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.Join(w.texts, "\n")
	w.texts = nil
	return text
}

// impersonate returns a client of a user with all RBAC rights.
func impersonate(t *testing.T, user string) (client.Client, *warnings) {
	t.Helper()
	config, received := rest.CopyConfig(environment.Config), &warnings{}
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters", "system:authenticated"}}
	config.WarningHandler = received
	c, err := client.New(config, client.Options{Scheme: environment.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c, received
}

// run is one round of a controller. What it has written goes with the test.
func run(t *testing.T, c *Controller) {
	t.Helper()
	t.Cleanup(func() {
		for _, name := range c.policies() {
			if err := remove(context.Background(), environment.Client, name); err != nil {
				t.Error(err)
			}
		}
	})
	if _, err := c.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
}

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// refused waits until something is refused: the API server takes a moment to take a policy in.
func refused(t *testing.T, what, because string, do func(context.Context) error) {
	t.Helper()
	poll.Eventually(t, what+" is refused", func(ctx context.Context) error {
		if err := do(ctx); err == nil || !strings.Contains(err.Error(), because) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

func admitted(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func TestPools(t *testing.T) {
	ours, _ := impersonate(t, "karpenter-metal3-provider")
	theirs, _ := impersonate(t, "tenant-user")
	trusted, _ := impersonate(t, "gitops")
	key := tenanttest.TenantCluster(t, &environment)
	c := NewPoolController(tenanttest.ClustersOf(key, ours, ours), []string{"gitops"})
	run(t, c)
	run(t, c) // changes nothing

	marked := fmt.Sprintf("labels: {%s: %s}", v1alpha1.TenantPoolLabelKey, autonodes.OwnerLabel(key))
	class := func(name, labels, properties string) *v1alpha1.MetalNodeClass {
		return parse[v1alpha1.MetalNodeClass](t, "{metadata: {name: "+name+", "+labels+"}, spec: {properties: {"+properties+"}}}")
	}
	pool := parse[karpv1.NodePool](t, "{metadata: {name: generated, "+marked+"}, spec: {template: {spec: {requirements: [], expireAfter: "+
		"Never, nodeClassRef: {group: karpenter.metal3.io, kind: MetalNodeClass, name: generated}}}, disruption: {consolidateAfter: 30s}}}")
	const made = "is generated from TenantCluster"
	refused(t, "what looks like a generated class", made, func(ctx context.Context) error {
		return theirs.Create(ctx, class("generated", marked, ""), client.DryRunAll)
	})
	admitted(t, "a class of the provider, pinned", ours.Create(t.Context(), class("generated", marked, "karpenter.metal3.io/server-name: s1")))
	admitted(t, "a pool of the provider", ours.Create(t.Context(), pool))

	change := func(c client.Client, object client.Object, patch string) func(context.Context) error {
		return func(ctx context.Context) error {
			return c.Patch(ctx, object.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", []byte(patch)),
				client.DryRunAll)
		}
	}
	generated := class("generated", "", "")
	for what, patch := range map[string]string{
		"changing its spec": `{"spec":{"properties":{"karpenter.metal3.io/server-name":"s2"}}}`,
		"taking its mark":   fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, v1alpha1.TenantPoolLabelKey),
	} {
		refused(t, what, made, change(theirs, generated, patch))
	}
	refused(t, "changing a pool", made, change(theirs, pool, `{"spec":{"limits":{"cpu":"1"}}}`))
	refused(t, "deleting a pool", made, func(ctx context.Context) error { return theirs.Delete(ctx, pool.DeepCopy(), client.DryRunAll) })
	refused(t, "deleting a class", made, func(ctx context.Context) error { return theirs.Delete(ctx, generated.DeepCopy(), client.DryRunAll) })
	admitted(t, "an annotation", change(theirs, generated, `{"metadata":{"annotations":{"a":"b"}}}`)(t.Context()))
	admitted(t, "a trusted user", change(trusted, generated, `{"spec":{"properties":{"a":"b"}}}`)(t.Context()))

	// What is the tenant's own stays the tenant's own, but for pins.
	own := class("own", "labels: {a: b}", "rack: r1")
	admitted(t, "a class of the tenant's own", theirs.Create(t.Context(), own))
	refused(t, "pinning it", "make it a static pool of quantity 1",
		change(theirs, own, `{"spec":{"properties":{"karpenter.metal3.io/server-name":"s1"}}}`))
	admitted(t, "deleting it", theirs.Delete(t.Context(), own))
	// The label alone is no mark of the platform: only the value that the provider writes is.
	foreign := fmt.Sprintf("labels: {%s: whatever}", v1alpha1.TenantPoolLabelKey)
	admitted(t, "a class with any mark", theirs.Create(t.Context(), class("foreign", foreign, ""), client.DryRunAll))
	refused(t, "pinning it", "make it a static pool of quantity 1", func(ctx context.Context) error {
		return theirs.Create(ctx, class("foreign", foreign, "karpenter.metal3.io/server-name: s1"), client.DryRunAll)
	})

	// What is taken away is put back.
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: PoolsPolicy(key)}}
	admitted(t, "an administrator", theirs.Delete(t.Context(), binding))
	run(t, c)
	admitted(t, "the binding is back", theirs.Get(t.Context(), client.ObjectKeyFromObject(binding), binding))

	// docs/install.md finds them by it when the provider is uninstalled. It is put back, too.
	binding.Labels = nil
	admitted(t, "an administrator", theirs.Update(t.Context(), binding))
	run(t, c)
	labelled := client.MatchingLabels{"app.kubernetes.io/managed-by": "karpenter-metal3-provider"}
	policies, bindings := &admissionregistrationv1.ValidatingAdmissionPolicyList{},
		&admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}
	for _, list := range []client.ObjectList{policies, bindings} {
		admitted(t, "listing by label", ours.List(t.Context(), list, labelled))
	}
	if len(policies.Items) == 0 || len(policies.Items) != len(bindings.Items) {
		t.Errorf("%d policies and %d bindings have the label", len(policies.Items), len(bindings.Items))
	}
}

func TestDeviceClasses(t *testing.T) {
	ours, _ := impersonate(t, "karpenter-metal3-provider")
	theirs, received := impersonate(t, "tenant-user")
	key := tenanttest.TenantCluster(t, &environment)
	c := NewDeviceClassController(tenanttest.ClustersOf(key, ours, ours), nil)
	enable := func(enabled bool) {
		t.Helper()
		cluster := &v1alpha1.TenantCluster{}
		if err := environment.Client.Get(t.Context(), key, cluster); err != nil {
			t.Fatal(err)
		}
		cluster.Spec.Sync.FromHost.DeviceClasses.Enabled = enabled
		if err := environment.Client.Update(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		run(t, c)
	}
	class := func(name string) *resourcev1.DeviceClass {
		return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	run(t, c)
	admitted(t, "while nothing is in sync", theirs.Create(t.Context(), class("mine")))
	admitted(t, "and deleting it", theirs.Delete(t.Context(), class("mine")))

	enable(true)
	refused(t, "creating a class", "are those that the platform allows",
		func(ctx context.Context) error { return theirs.Create(ctx, class("mine"), client.DryRunAll) })
	admitted(t, "the sync", ours.Create(t.Context(), class("gpu")))
	refused(t, "deleting a class", "are those that the platform allows",
		func(ctx context.Context) error { return theirs.Delete(ctx, class("gpu"), client.DryRunAll) })
	run(t, c) // a class has come

	namespace := environment.Namespace(t)
	const spec = "{devices: {requests: [{name: a, exactly: {deviceClassName: %s}}, {name: b, firstAvailable: [{name: c, deviceClassName: " +
		"gpu}, {name: d, deviceClassName: %s}]}]}}"
	claim := func(first, second string) *resourcev1.ResourceClaim {
		return parse[resourcev1.ResourceClaim](t, "{metadata: {namespace: "+namespace+", generateName: c-}, spec: "+
			fmt.Sprintf(spec, first, second)+"}")
	}
	const warning = "DeviceClass fpga, nic is not available in this cluster (there are gpu): the claim is not in sync before it is"
	poll.Eventually(t, "a claim for other classes is warned of", func(ctx context.Context) error {
		received.take()
		if err := theirs.Create(ctx, claim("fpga", "nic"), client.DryRunAll); err != nil {
			return err
		}
		if text := received.take(); !strings.Contains(text, warning) {
			return fmt.Errorf("received is %q", text)
		}
		return nil
	})
	template := parse[resourcev1.ResourceClaimTemplate](t, "{metadata: {namespace: "+namespace+", generateName: t-}, spec: {spec: "+
		fmt.Sprintf(spec, "fpga", "nic")+"}}")
	admitted(t, "a template", theirs.Create(t.Context(), template))
	if text := received.take(); !strings.Contains(text, warning) {
		t.Errorf("of a template: received is %q", text)
	}
	admitted(t, "a claim for a class that is there", theirs.Create(t.Context(), claim("gpu", "gpu")))
	if text := received.take(); text != "" {
		t.Errorf("of a good claim: received is %q", text)
	}

	enable(false)
	poll.Eventually(t, "the tenant's classes are its own again",
		func(ctx context.Context) error { return theirs.Delete(ctx, class("gpu"), client.DryRunAll) })
}

func TestNodePools(t *testing.T) {
	ours, _ := impersonate(t, "karpenter-metal3-provider")
	theirs, received := impersonate(t, "tenant-user")
	key := tenanttest.TenantCluster(t, &environment)
	for name, spec := range map[string]string{"pool-h100": "h100", "pool-cpu": "cpu"} {
		nodeType := parse[v1alpha1.NodeType](t, "{metadata: {name: "+name+"}, spec: {providerRef: {name: fleet}, resources: {cpu: 1, memory: "+
			"1Gi}, bareMetalHosts: {selector: {matchLabels: {kind: "+spec+"}}}}}")
		if err := environment.Client.Create(t.Context(), nodeType); err != nil {
			t.Fatal(err)
		}
		nodeType.Status.Requirements = []v1alpha1.NodeTypeRequirement{{Key: "rack", Values: []string{"r1"}}}
		if err := environment.Client.Status().Update(t.Context(), nodeType); err != nil {
			t.Fatal(err)
		}
	}
	cluster := &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(t.Context(), key, cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Spec.AllowedNodeTypes = &[]string{"pool-h100"}
	if err := environment.Client.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	run(t, NewPoolController(tenanttest.ClustersOf(key, ours, ours), nil))

	expireAfter := "Never"
	pool := func(group, requirements string) *karpv1.NodePool {
		return parse[karpv1.NodePool](t, "{metadata: {generateName: own-}, spec: {template: {spec: {requirements: ["+requirements+
			"], expireAfter: "+expireAfter+", nodeClassRef: {group: "+group+", kind: X, name: x}}}, disruption: {consolidateAfter: 30s}}}")
	}
	try := func(ctx context.Context, group, requirements string) (string, error) {
		received.take()
		err := theirs.Create(ctx, pool(group, requirements), client.DryRunAll)
		return received.take(), err
	}
	const byType = "{key: node.kubernetes.io/instance-type, operator: In, values: [%s]}"
	refused(t, "a type that is not allowed", "NodeType pool-cpu is not among the allowedNodeTypes of TenantCluster "+key.String(),
		func(ctx context.Context) error {
			_, err := try(ctx, v1alpha1.Group, fmt.Sprintf(byType, "pool-h100, pool-cpu"))
			return err
		})
	for _, beyond := range []string{"Lt, values: ['0']", "Gt, values: ['9223372036854775806']", "Gte, values: ['9223372036854775807']",
		"Lte, values: ['9223372036854775807']"} {
		refused(t, "core would panic", "is a number of at most 18 digits", func(ctx context.Context) error {
			_, err := try(ctx, v1alpha1.Group, "{key: rack, operator: "+beyond+"}")
			return err
		})
	}
	// Karpenter's own schema: the operators of a vcluster.yaml are others.
	refused(t, "an operator that there is not", `Unsupported value: "NotExists"`, func(ctx context.Context) error {
		_, err := try(ctx, v1alpha1.Group, "{key: rack, operator: NotExists}")
		return err
	})
	for what, tc := range map[string]struct{ group, requirements, want string }{
		"a type and a label that are there": {v1alpha1.Group, fmt.Sprintf(byType, "pool-h100, later") +
			", {key: rack, operator: In, values: [r1]}, {key: karpenter.sh/capacity-type, operator: In, values: [reserved]}", ""},
		"a label that is not": {v1alpha1.Group, "{key: rak, operator: In, values: [r1]}",
			"no NodeType has the property rak (there are rack): it selects no servers, and becomes a label of the nodes"},
		"the ends of bounds": {v1alpha1.Group, "{key: rack, operator: Gte, values: ['0']}, {key: rack, operator: Lt, values: ['1']}, " +
			"{key: rack, operator: Lte, values: ['999999999999999999']}", ""},
		"a label that must not be":   {v1alpha1.Group, "{key: tenant, operator: DoesNotExist}", ""},
		"a type that is not":         {v1alpha1.Group, fmt.Sprintf(byType, "h10"), "there is no NodeType h10 (there are pool-cpu, pool-h100)"},
		"a pool of another provider": {"karpenter.k8s.aws", fmt.Sprintf(byType, "pool-cpu") + ", {key: rak, operator: Exists}", ""},
	} {
		poll.Eventually(t, what+" is judged", func(ctx context.Context) error {
			text, err := try(ctx, tc.group, tc.requirements)
			if err != nil || (tc.want == "") != (text == "") || !strings.Contains(text, tc.want) {
				return fmt.Errorf("%v, received is %q, want %q", err, text, tc.want)
			}
			return nil
		})
	}
	expireAfter = "720h"
	poll.Eventually(t, "the age at which all servers go is judged", func(ctx context.Context) error {
		text, err := try(ctx, v1alpha1.Group, "")
		if err != nil || !strings.Contains(text, "spec.template.spec.expireAfter: nodes expire whatever the disruption budgets say") {
			return fmt.Errorf("%v, received is %q", err, text)
		}
		return nil
	})
}

// TestRestrictedPermissions: the provider may write what protects the tenant, put it back and take it away. It reads from caches, which
// the administrator plays here.
func TestRestrictedPermissions(t *testing.T) {
	environment.Grant(t, "any", "provider-tenant.yaml", "provider-dra-tenant.yaml")
	config := rest.CopyConfig(environment.Config)
	config.Impersonate.UserName = "karpenter-metal3-provider"
	writer, err := client.NewWithWatch(config, client.Options{Scheme: environment.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	ours := interceptor.NewClient(writer, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			return environment.Client.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return environment.Client.List(ctx, list, options...)
		},
	})
	key := tenanttest.TenantCluster(t, &environment)
	cluster := &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(t.Context(), key, cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Spec.Sync.FromHost.DeviceClasses.Enabled = true
	admitted(t, "the platform", environment.Client.Update(t.Context(), cluster))
	clusters := tenanttest.ClustersOf(key, ours, environment.Client)
	pools, classes := NewPoolController(clusters, nil), NewDeviceClassController(clusters, nil)
	for _, c := range []*Controller{pools, classes} {
		run(t, c)
		for _, name := range c.policies() {
			policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
			for _, object := range []client.Object{policy, binding} {
				admitted(t, "it is there", environment.Client.Get(t.Context(), client.ObjectKey{Name: name}, object))
			}
			policy.Spec.Validations, binding.Spec.ValidationActions = policy.Spec.Validations[:1],
				[]admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
			policy.Spec.Validations[0].Message = "another"
			for _, object := range []client.Object{policy, binding} {
				admitted(t, "an administrator", environment.Client.Update(t.Context(), object))
			}
			run(t, c)
			admitted(t, "it is there", environment.Client.Get(t.Context(), client.ObjectKeyFromObject(binding), binding))
			if slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Audit) {
				t.Errorf("%s was changed, and not restored: %v", binding.Name, binding.Spec.ValidationActions)
			}
		}
	}
	admitted(t, "it is there", environment.Client.Get(t.Context(), key, cluster))
	cluster.Spec.Sync.FromHost.DeviceClasses.Enabled = false
	admitted(t, "the platform", environment.Client.Update(t.Context(), cluster))
	run(t, classes)
	err = environment.Client.Get(t.Context(), client.ObjectKey{Name: DeviceClassesPolicy},
		&admissionregistrationv1.ValidatingAdmissionPolicy{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the sync has ended, and its policy is there: %v", err)
	}
}

// TestTokensPolicyMissing: that the provider's own Secrets are not restricted is logged, once for the policy and once for the binding.
func TestTokensPolicyMissing(t *testing.T) {
	logged := 0
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, text string) {
		if strings.Contains(text, TokensPolicy) {
			logged++
		}
	}, funcr.Options{}))
	key := client.ObjectKey{Namespace: "a", Name: "tokens"}
	c := NewPoolController(tenanttest.ClustersOf(key, environment.Client, environment.Client), nil)
	look := func(want int) {
		t.Helper()
		logged = 0
		if err := c.lookForTokensPolicy(ctx); err != nil || logged != want {
			t.Errorf("%d errors are logged, want %d (%v)", logged, want, err)
		}
	}
	look(2)
	objects, err := configpolicy.Tenant("karpenter-metal3-provider", "")
	if err != nil {
		t.Fatal(err)
	}
	for n, object := range objects {
		if err := environment.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		look(1 - n)
		t.Cleanup(func() {
			if err := environment.Client.Delete(context.Background(), object); err != nil {
				t.Error(err)
			}
		})
	}
}
