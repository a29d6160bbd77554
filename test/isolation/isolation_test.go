// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package isolation tests that one thing that is broken does not stop the others of its tenant.
package isolation

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

type hostList = bmov1alpha1.BareMetalHostList

func TestMain(m *testing.M) {
	if err := instancetypes.Register(topology.Defaults()); err != nil {
		panic(err)
	}
	m.Run()
}

// tenancy is what a tenant has, and what of it is broken.
type tenancy struct {
	types []brokenType
	pools []brokenPool
	pods  []brokenPod
	// quota of the TenantCluster and machines of a ResourceQuota; math.MaxInt if there is none.
	quota, machines int
}

type brokenType struct {
	name string
	// noAddress: all addresses of its network are taken. invalid: its image does not exist.
	noAddress, invalid bool
}

type brokenPool struct {
	name  string
	types []string
	// invalid: the image of its class does not exist. denied: a policy engine admits no Machine of it.
	invalid, denied bool
}

// brokenPod needs a server for itself.
type brokenPod struct {
	name string
	// pool that it selects; empty for any.
	pool string
}

func draw(random *rand.Rand) tenancy {
	drawn := tenancy{quota: math.MaxInt, machines: math.MaxInt}
	oneIn := func(in int) bool { return random.IntN(in) == 0 }
	for n := range 1 + random.IntN(4) {
		drawn.types = append(drawn.types, brokenType{name: fmt.Sprintf("type-%d", n), noAddress: oneIn(3), invalid: oneIn(4)})
	}
	for n := range 1 + random.IntN(4) {
		pool := brokenPool{name: fmt.Sprintf("pool-%d", n), invalid: oneIn(3), denied: oneIn(4)}
		for _, broken := range drawn.types {
			if oneIn(2) {
				pool.types = append(pool.types, broken.name)
			}
		}
		if len(pool.types) == 0 {
			pool.types = []string{drawn.types[random.IntN(len(drawn.types))].name}
		}
		drawn.pools = append(drawn.pools, pool)
	}
	for n := range 1 + random.IntN(6) {
		pod := brokenPod{name: fmt.Sprintf("pod-%d", n)}
		if !oneIn(3) {
			pod.pool = drawn.pools[random.IntN(len(drawn.pools))].name
		}
		drawn.pods = append(drawn.pods, pod)
	}
	if oneIn(4) {
		drawn.quota = random.IntN(4)
	}
	if oneIn(4) {
		drawn.machines = random.IntN(4)
	}
	return drawn
}

// served is how many pods can be served in spite of what is broken.
func (d tenancy) served() (count int) {
	for _, pod := range d.pods {
		if slices.ContainsFunc(d.pools, func(pool brokenPool) bool {
			return (pod.pool == "" || pod.pool == pool.name) && !pool.invalid && !pool.denied &&
				slices.ContainsFunc(d.types, func(broken brokenType) bool {
					return slices.Contains(pool.types, broken.name) && !broken.invalid && !broken.noAddress
				})
		}) {
			count++
		}
	}
	return min(count, d.quota, d.machines)
}

func (d tenancy) build(t *testing.T) *fixture {
	t.Helper()
	w := newFixture(t)
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: providerName}}
	provider.Spec.Metal3.ClusterRef.Namespace = w.metal3
	image := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "image"}}
	image.Spec.Properties = map[string]string{v1alpha1.PropertyImageURL: "http://images.example.com/os.qcow2",
		v1alpha1.PropertyImageChecksum: strings.Repeat("0", 32)}
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.tenant, Name: tenantName}}
	tenant.Spec.APIServerEndpoint = "tenant.example.com:6443"
	tenant.Spec.TenantProperties = &v1alpha1.TenantProperties{OSImages: []string{"missing"}}
	if d.quota < math.MaxInt {
		tenant.Spec.Quota = &v1alpha1.Quota{Servers: ptr.To(int64(d.quota))}
	}
	for _, object := range []client.Object{provider, image, tenant} {
		w.create(object)
	}
	for n, broken := range d.types {
		properties := map[string]string{v1alpha1.PropertyOSImage: "image"}
		if broken.invalid {
			properties[v1alpha1.PropertyOSImage] = "missing"
		}
		w.addType(broken.name, n, len(d.pods)+1, properties)
		w.feedHosts()
		w.feedTypes()
		if !broken.noAddress || broken.invalid {
			continue
		}
		w.takeAddresses(broken.name, n)
	}
	for _, pool := range d.pools {
		properties := map[string]string{}
		if pool.invalid {
			properties[v1alpha1.PropertyOSImage] = "missing"
		}
		w.addPool(pool.name, pool.types, properties)
	}
	for _, pod := range d.pods {
		w.create(planning.Pod(pod.name, []string{"cpu", "10"}, func(object *corev1.Pod) {
			object.UID = ""
			if pod.pool != "" {
				object.Spec.NodeSelector = map[string]string{"pool": pod.pool}
			}
		}))
	}
	w.deny = func(machine *v1alpha1.Machine) error {
		forbidden := func(why string) error {
			return apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.Group, Resource: "machines"}, machine.Name, errors.New(why))
		}
		if slices.ContainsFunc(d.pools, func(pool brokenPool) bool {
			return pool.denied && pool.name == machine.Labels[karpv1.NodePoolLabelKey]
		}) {
			return forbidden("denied by a policy")
		}
		existing := &v1alpha1.MachineList{}
		w.list(existing, client.InNamespace(w.tenant))
		if len(existing.Items) >= d.machines {
			return forbidden("exceeded quota: machines")
		}
		return nil
	}
	return w
}

// takeAddresses gives a type a network of one address, which is taken.
func (w *fixture) takeAddresses(nodeType string, n int) {
	w.t.Helper()
	stored := &v1alpha1.NodeType{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: nodeType}, stored); err != nil {
		w.t.Fatal(err)
	}
	stored.Spec.Properties[v1alpha1.PropertyNetworkCIDR] = fmt.Sprintf("10.%d.0.1/24", n)
	stored.Spec.Properties[v1alpha1.PropertyNetworkIPRange] = fmt.Sprintf("10.%d.0.2-10.%d.0.2", n, n)
	if err := w.api.Update(w.ctx, stored); err != nil {
		w.t.Fatal(err)
	}
	others := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.others}}
	allow := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, v1alpha1.StandAloneMachinesLabelKey, v1alpha1.StandAloneMachinesLabelValue)
	if err := w.api.Patch(w.ctx, others, client.RawPatch(types.MergePatchType, []byte(allow))); err != nil {
		w.t.Fatal(err)
	}
	taker := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.others, Name: "taker-" + nodeType}}
	taker.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: nodeType}
	w.create(taker)
	w.manage(client.ObjectKeyFromObject(taker))
}

// TestBrokenThingsStopNoOther: whatever is broken of a tenant, a pod that could be served is served, and what cannot be
// served costs ever fewer writes.
func TestBrokenThingsStopNoOther(t *testing.T) {
	brokenThings(t, 0, 12)
}

// TestMoreBrokenThingsStopNoOther does that with more tenants.
func TestMoreBrokenThingsStopNoOther(t *testing.T) {
	system.Only(t)
	brokenThings(t, 12, 60)
}

func brokenThings(t *testing.T, first, last uint64) {
	for seed := first; seed < last; seed++ {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			drawn := draw(rand.New(rand.NewPCG(seed, 13)))
			w := drawn.build(t)
			const lasts, measured = 30 * time.Minute, 10 * time.Minute
			for range lasts / step {
				w.pass()
			}
			pods := &corev1.PodList{}
			w.list(pods, client.MatchingFields{"spec.nodeName": ""})
			if served := len(drawn.pods) - len(pods.Items); served != drawn.served() {
				t.Errorf("%d pods of %d are served, want %d: %+v", served, len(drawn.pods), drawn.served(), drawn)
			}
			late := 0
			for _, written := range w.writes {
				if w.clock.Since(written) <= measured {
					late++
				}
			}
			// Each NodePool is tried at most twice in that time, and a NodeClaim that is refused costs no more than ten writes.
			if most := 2 * 10 * len(drawn.pools) * len(pods.Items); late > most {
				t.Errorf("%d writes in the last %v, want %d at most: %+v", late, measured, most, drawn)
			}
		})
	}
}
