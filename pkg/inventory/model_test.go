// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

// model behaves like the inventory, but computes everything from all objects each time.
type model struct {
	topology topology.Mapping
	hosts    map[types.NamespacedName]*bmov1alpha1.BareMetalHost
	types    map[string]Profile
	assumed  map[types.UID]assumption
}

type assumption struct {
	host     types.NamespacedName
	nodeType string
	tenant   string
}

// exclusive are the labels of hosts whose domains are for one tenant each, sorted.
func (m *model) exclusive(namespace string) (keys []string) {
	for _, profile := range m.types {
		if profile.Namespace == namespace {
			keys = append(keys, profile.Exclusive...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// holder is whose server a host is, for its domains.
func (m *model) holder(host *bmov1alpha1.BareMetalHost) string {
	known := func(namespace string) string {
		if namespace == "" {
			return unknownHolder
		}
		return namespace
	}
	for _, assumption := range m.assumed {
		if assumption.host == (types.NamespacedName{Namespace: host.Namespace, Name: host.Name}) {
			return known(assumption.tenant)
		}
	}
	if host.Spec.ConsumerRef != nil {
		return known(host.Spec.ConsumerRef.Namespace)
	}
	if quarantine, ours := QuarantineOf(host); ours {
		return quarantine.Machine.Namespace
	}
	anyTenant := len(m.matching(host)) > 0
	for _, name := range m.matching(host) {
		anyTenant = anyTenant && m.types[name].AnyTenant
	}
	if last, used := host.Annotations[v1alpha1.LastTenantAnnotationKey]; used && !anyTenant {
		return known(last)
	}
	return ""
}

// holders are the tenants with servers in the domain of a host by a label, each once.
func (m *model) holders(host *bmov1alpha1.BareMetalHost, key string) map[string]bool {
	holders := map[string]bool{}
	for _, other := range m.hosts {
		if holder := m.holder(other); holder != "" && host.Labels[key] != "" && other.Namespace == host.Namespace &&
			other.Labels[key] == host.Labels[key] {
			holders[holder] = true
		}
	}
	return holders
}

// open returns whether a tenant may have a server in all domains of a host.
func (m *model) open(host *bmov1alpha1.BareMetalHost, tenant string) bool {
	for _, key := range m.exclusive(host.Namespace) {
		holders := m.holders(host, key)
		if delete(holders, tenant); len(holders) > 0 {
			return false
		}
	}
	return true
}

// preference orders hosts by their domains: those of the tenant, the fullest first, those in none, and those with most free servers.
func (m *model) preference(host *bmov1alpha1.BareMetalHost) string {
	least, held, none := 1000, 1000, true
	for _, key := range m.exclusive(host.Namespace) {
		if host.Labels[key] == "" {
			continue
		}
		none = false
		free := 0
		for name, other := range m.hosts {
			if _, assumed := m.assumedAs(name); !assumed && EligibilityOf(other).Claimable && other.Namespace == host.Namespace &&
				other.Labels[key] == host.Labels[key] {
				free++
			}
		}
		least = min(least, free)
		if len(m.holders(host, key)) > 0 {
			held = min(held, free)
		}
	}
	if held < 1000 {
		return fmt.Sprintf("0 %04d", held)
	}
	if none {
		return "1"
	}
	return fmt.Sprintf("2 %04d", 1000-least)
}

// held are the labels of nodes by which a host is in domains of tenants.
func (m *model) held(host *bmov1alpha1.BareMetalHost) (held []string) {
	nodeLabels := map[string][]string{"rack": {leafLabel, "rack"}, "serial": {"serial"}}
	for _, key := range m.exclusive(host.Namespace) {
		if len(m.holders(host, key)) > 0 {
			held = append(held, nodeLabels[key]...)
		}
	}
	slices.Sort(held)
	return held
}

func (m *model) assumedAs(key types.NamespacedName) (string, bool) {
	for _, assumption := range m.assumed {
		if assumption.host == key {
			return assumption.nodeType, true
		}
	}
	return "", false
}

func (m *model) used(name string) (used int32) {
	for key, host := range m.hosts {
		nodeType, assumed := m.assumedAs(key)
		if !assumed && host.Spec.ConsumerRef != nil && strings.HasPrefix(host.Spec.ConsumerRef.APIVersion, v1alpha1.Group) {
			nodeType = host.Annotations[v1alpha1.NodeTypeAnnotationKey]
		}
		if nodeType == name {
			used++
		}
	}
	return used
}

func (m *model) matches(profile Profile, host *bmov1alpha1.BareMetalHost) bool {
	return host.Namespace == profile.Namespace && profile.Selector.Matches(labels.Set(host.Labels))
}

// typeLabels are those of a type whose properties have one value each.
func (m *model) typeLabels(profile Profile) labels.Set {
	set, _ := typeLabels(profile)
	return set
}

func (m *model) labels(profile Profile, host *bmov1alpha1.BareMetalHost) labels.Set {
	set := m.typeLabels(profile)
	maps.Copy(set, hostLabels(profile.Zone, architecture(host), m.topology, host.Labels))
	maps.Copy(set, v1alpha1.TypeLabels(m.matching(host)))
	return set
}

// matching are the types that a host matches, sorted.
func (m *model) matching(host *bmov1alpha1.BareMetalHost) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(m.types)) {
		if m.matches(m.types[name], host) {
			names = append(names, name)
		}
	}
	return names
}

func (m *model) free(profile Profile, host *bmov1alpha1.BareMetalHost, tenant string) bool {
	_, assumed := m.assumedAs(types.NamespacedName{Namespace: host.Namespace, Name: host.Name})
	return !assumed && !m.unknown(profile, host) && EligibilityOf(host).For(tenant, profile.AnyTenant).Claimable
}

// unknown returns whether the type leaves out cpu, and that of the host is not known.
func (m *model) unknown(profile Profile, host *bmov1alpha1.BareMetalHost) bool {
	return len(profile.LeftOut) > 0 && hardwareOf(host).cpus == 0
}

func (m *model) remaining(profile Profile) int32 {
	if profile.MaxCapacity == nil {
		return 1 << 30
	}
	return max(0, *profile.MaxCapacity-m.used(profile.Name))
}

func (m *model) summary(name string) Summary {
	profile := m.types[name]
	var all Counts
	var smallServers []SmallServer
	var least map[corev1.ResourceName]Least
	zones, values := map[string]Counts{}, map[string]map[string]bool{}
	domains, examples := map[string]Counts{}, map[string]v1alpha1.DomainCapacity{}
	insert := func(set labels.Set) {
		for key, value := range set {
			if values[key] == nil {
				values[key] = map[string]bool{}
			}
			values[key][value] = true
		}
	}
	for key, host := range m.hosts {
		if !m.matches(profile, host) {
			continue
		}
		eligibility, counts := EligibilityOf(host), Counts{Total: 1}
		_, assumed := m.assumedAs(key)
		if eligibility.UsedBy != "" {
			counts.Foreign = 1
		}
		if eligibility.Quarantined {
			counts.AllQuarantined = 1
		}
		if quarantine, _ := QuarantineOf(host); quarantine.Suspect {
			counts.Suspects = 1
		}
		small := Lacks(host, profile.Resources)
		if small != "" {
			counts.TooSmall = 1
			smallServers = append(smallServers, SmallServer{Server: key.String(), Lacks: small})
		}
		switch {
		case eligibility.Claimed || assumed:
			counts.Claimed = 1
		case eligibility.Reason == ReasonQuarantined:
			counts.Quarantined = 1
		case eligibility.Reason == ReasonError:
			counts.Error = 1
		case small != "":
		case m.free(profile, host, ""):
			counts.Available = 1
		case eligibility.Reason == ReasonNotCleaned && !m.unknown(profile, host):
			counts.NotCleaned = 1
		case eligibility.Reason == ReasonMaintenance:
			counts.Maintenance = 1
		default:
			counts.NotReady = 1
		}
		if len(profile.LeftOut) > 0 && small == "" && !m.unknown(profile, host) {
			cpus := hardwareOf(host).cpus
			known, found := least["cpu"]
			if known.Quantity.CmpInt64(cpus) > 0 || !found || known.Quantity.CmpInt64(cpus) == 0 && known.Server > key.String() {
				least = map[corev1.ResourceName]Least{"cpu": {Quantity: *resource.NewQuantity(cpus, resource.DecimalSI), Server: key.String()}}
			}
		}
		set := m.labels(profile, host)
		insert(set)
		domain := v1alpha1.DomainCapacity{Zone: set[corev1.LabelTopologyZone]}
		if rack := set["rack"]; rack != "" {
			domain.Labels = map[string]string{"rack": rack}
		}
		if leaf := set[leafLabel]; leaf != "" { // not that of a rack which is a property
			domain.Labels[leafLabel] = leaf
		}
		domain.Held = m.held(host)
		matches := m.matching(host)
		for _, other := range matches {
			if other != name {
				domain.SharedWith = append(domain.SharedWith, other)
			}
		}
		place := domain.Zone + "/" + set[leafLabel] + "/" + set["rack"] + "/" + strings.Join(matches, ",") + "/" +
			strings.Join(domain.Held, ",")
		examples[place], domains[place] = domain, domains[place].plus(counts)
		all, zones[set[corev1.LabelTopologyZone]] = all.plus(counts), zones[set[corev1.LabelTopologyZone]].plus(counts)
	}
	if all.Total == 0 {
		insert(m.typeLabels(profile))
	}
	remaining := m.remaining(profile)
	slices.SortFunc(smallServers, func(a, b SmallServer) int { return strings.Compare(a.Server, b.Server) })
	smallServers = smallServers[:min(len(smallServers), MaxNamed)]
	summary := Summary{Capacity: all.capacity(remaining), NotReady: all.NotReady, AllQuarantined: all.AllQuarantined, Suspects: all.Suspects,
		Foreign: all.Foreign, Used: m.used(name), TooSmall: smallServers, Least: least}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		summary.Zones = append(summary.Zones, v1alpha1.ZoneCapacity{Name: zone, Capacity: zones[zone].capacity(remaining)})
	}
	for _, place := range slices.Sorted(maps.Keys(domains)) {
		domain := examples[place]
		domain.Capacity = domains[place].capacity(remaining)
		summary.Domains = append(summary.Domains, domain)
	}
	summary.DomainCount = len(domains)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		summary.Requirements = append(summary.Requirements, v1alpha1.NodeTypeRequirement{Key: key, Values: slices.Sorted(maps.Keys(values[key]))})
	}
	return summary
}

// choose returns the host and the type, both empty if there is none.
func (m *model) choose(request Request) (types.NamespacedName, string) {
	if before, found := m.assumed[request.Machine]; found {
		delete(m.assumed, request.Machine)
		profile, known := m.types[before.nodeType]
		m.assumed[request.Machine] = before // in its domains it counts until it is given up
		open := m.open(m.hosts[before.host], request.Tenant)
		delete(m.assumed, request.Machine)
		if known && open && m.suits(profile, m.hosts[before.host], request) {
			m.assumed[request.Machine] = before
			return before.host, before.nodeType
		}
	}
	profiles := slices.SortedFunc(maps.Values(m.types), func(a, b Profile) int {
		if a.Cost != b.Cost {
			return int(a.Cost - b.Cost)
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, profile := range profiles {
		var best *bmov1alpha1.BareMetalHost
		rank := func(host *bmov1alpha1.BareMetalHost) string {
			own := "1 "
			if EligibilityOf(host).LastTenant == request.Tenant && request.Tenant != "" && !profile.AnyTenant {
				own = "0 "
			}
			labels := hostLabels(profile.Zone, architecture(host), m.topology, host.Labels)
			var domains []*domain
			for _, key := range m.exclusive(host.Namespace) {
				if value := host.Labels[key]; value != "" {
					domains = append(domains, &domain{place: place{value: value}})
				}
			}
			return own + m.preference(host) + bucketKey(m.topology.Keys(), labels, m.matching(host), domains) + host.Namespace + "/" + host.Name
		}
		for _, host := range m.hosts {
			if m.suits(profile, host, request) && (best == nil || rank(host) < rank(best)) {
				best = host
			}
		}
		if best != nil {
			key := types.NamespacedName{Namespace: best.Namespace, Name: best.Name}
			m.assumed[request.Machine] = assumption{key, profile.Name, request.Tenant}
			return key, profile.Name
		}
	}
	return types.NamespacedName{}, ""
}

func (m *model) suits(profile Profile, host *bmov1alpha1.BareMetalHost, request Request) bool {
	if request.NodeType != "" && request.NodeType != profile.Name || request.ServerName != "" && request.ServerName != host.Name {
		return false
	}
	if request.NodeType == "" {
		for name, quantity := range request.Resources {
			if there := (capacity.Kubelet{}).Allocatable(profile.Server)[name]; there.Cmp(quantity) < 0 {
				return false
			}
		}
		if gpus := profile.Resources["nvidia.com/gpu"]; !gpus.IsZero() && request.Resources.Name("nvidia.com/gpu", "").IsZero() {
			return false
		}
	}
	for _, requirement := range request.Requirements {
		if value, found := m.labels(profile, host)[requirement.Key]; !found || !slices.Contains(requirement.Values, value) {
			return false
		}
	}
	return m.matches(profile, host) && m.open(host, request.Tenant) && Lacks(host, profile.Resources) == "" &&
		m.free(profile, host, request.Tenant) &&
		m.remaining(profile) > 0
}

// fleet makes random hosts, types and requests from few values, so that they collide.
type fleet struct{ *rand.Rand }

func (f fleet) pick(values ...string) string { return values[f.IntN(len(values))] }

func (f fleet) host() *bmov1alpha1.BareMetalHost {
	host := available(fmt.Sprintf("h%d", f.IntN(12)), map[string]string{
		"kind": f.pick("a", "b", "c"), "rack": f.pick("r1", "r2", ""), "datacenter": f.pick("d1", "d2", ""), "serial": f.pick("1", "2", "3")})
	host.Namespace = f.pick("metal3", "metal3", "elsewhere")
	if cpus := f.IntN(5); cpus < 3 { // else it has not been inspected
		host.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{CPU: bmov1alpha1.CPU{Count: 2 + 3*cpus}}
	}
	switch f.IntN(6) {
	case 0:
		host.Spec.AutomatedCleaningMode = bmov1alpha1.CleaningModeDisabled
	case 1, 2:
		host.Annotations = map[string]string{v1alpha1.LastTenantAnnotationKey: f.pick("blue", "red", "")}
	}
	switch f.IntN(8) {
	case 0, 1:
		claimed(host, f.pick("t0", "t1", "t2")).Spec.ConsumerRef.Namespace = f.pick("blue", "red", "")
	case 2:
		failed(host)
	case 3:
		host.Status.Provisioning.State = bmov1alpha1.StateInspecting
	case 4:
		failed(claimed(host, "t0")).Spec.ConsumerRef.APIVersion = "infrastructure.cluster.x-k8s.io/v1beta1"
	case 5:
		host.Annotations = map[string]string{v1alpha1.QuarantinedAnnotationKey: "by hand"}
	}
	if f.IntN(6) == 0 {
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.QuarantinedAnnotationKey, Quarantine{
			Reason: "DeadlineExceeded", Since: time.Unix(1, 0), Machine: types.NamespacedName{Namespace: f.pick("blue", "red"), Name: "m"},
			Suspect: f.IntN(3) > 0,
		}.String())
	}
	return host
}

func (f fleet) profile() Profile {
	profile := profile(f.pick("t0", "t1", "t2", "t3"), int64(f.IntN(4)), list("cpu", f.pick("4", "8"), "nvidia.com/gpu", f.pick("0", "8")))
	profile.Namespace = f.pick("metal3", "metal3", "elsewhere")
	profile.Selector = labels.SelectorFromSet(map[string]string{"kind": f.pick("a", "b", "c")})
	if f.IntN(4) == 0 {
		profile.Selector = labels.Everything()
	}
	if f.IntN(4) == 0 {
		delete(profile.Resources, "cpu")
		profile.LeftOut = []corev1.ResourceName{"cpu"}
	}
	profile.Zone = f.pick("", "", "z")
	profile.AnyTenant = f.IntN(4) == 0
	profile.Exclusive = [][]string{nil, nil, {"rack"}, {"serial"}, {"rack", "serial"}}[f.IntN(5)]
	profile.Properties = map[string]string{"team": f.pick("x", "y"), "rack": f.pick("", "r7")}
	if limit := int32(f.IntN(5)); limit < 3 {
		profile.MaxCapacity = &limit
	}
	return profile
}

func (f fleet) request() Request {
	request := Request{Machine: types.UID(fmt.Sprintf("m%d", f.IntN(8))), Tenant: f.pick("blue", "red", "green", ""),
		Resources: list("cpu", f.pick("2", "6"), "nvidia.com/gpu", f.pick("0", "1"))}
	for key, values := range map[string][]string{"rack": {"r1", "r2", "r7"}, leafLabel: {"r1", "r2"}, "team": {"x"},
		corev1.LabelTopologyZone:                  {"d1", "z", "global"},
		v1alpha1.TypeLabelKey(f.pick("t0", "t1")): {"true"}} {
		if f.IntN(4) == 0 {
			request.Requirements = append(request.Requirements, in(key, values[:1+f.IntN(len(values))]...))
		}
	}
	switch f.IntN(6) {
	case 0:
		request.NodeType = f.pick("t0", "t1")
	case 1:
		request.ServerName = f.pick("h1", "h2", "h3")
	}
	return request
}

const leafLabel = "network.topology.nvidia.com/leaf"

// TestInventoryAgreesWithModel plays random histories, and after each step asks the inventory and a model that counts
// everything again.
func TestInventoryAgreesWithModel(t *testing.T) {
	const histories, steps = 60, 200
	mapping, err := topology.Parse([]string{"rack", "rack=" + leafLabel})
	if err != nil {
		t.Fatal(err)
	}
	given := 0
	for seed := range uint64(histories) {
		f := fleet{rand.New(rand.NewPCG(seed, 1))}
		inventory := NewInventory(Options{Topology: &mapping})
		m := &model{topology: inventory.topology, hosts: map[types.NamespacedName]*bmov1alpha1.BareMetalHost{}, types: map[string]Profile{},
			assumed: map[types.UID]assumption{}}
		told := map[string]Summary{}
		notifications := &notifications{}
		inventory.OnChange(notifications.take)
		inventory.OnChange(func(names []string) {
			for _, name := range names {
				if summary, known := inventory.Summary(name); known {
					told[name] = summary
				} else {
					delete(told, name)
				}
			}
		})
		for step := range steps {
			position := fmt.Sprintf("seed %d, step %d", seed, step)
			host := f.host()
			key := types.NamespacedName{Namespace: host.Namespace, Name: host.Name}
			switch f.IntN(10) {
			case 0:
				inventory.DeleteHost(key)
				delete(m.hosts, key)
				maps.DeleteFunc(m.assumed, func(_ types.UID, a assumption) bool { return a.host == key })
			case 1:
				profile := f.profile()
				inventory.SetType(profile)
				m.types[profile.Name] = profile
			case 2:
				if f.IntN(4) == 0 {
					name := f.pick("t0", "t1", "t2", "t3")
					inventory.DeleteType(name)
					delete(m.types, name)
				}
			case 3:
				machine := types.UID(fmt.Sprintf("m%d", f.IntN(8)))
				inventory.Forget(key, machine)
				if m.assumed[machine].host == key {
					delete(m.assumed, machine)
				}
			case 4, 5, 6:
				inventory.SetHost(host)
				m.hosts[key] = host
				if host.Spec.ConsumerRef != nil {
					maps.DeleteFunc(m.assumed, func(_ types.UID, a assumption) bool { return a.host == key })
				}
			default:
				request := f.request()
				choice, err := inventory.give(request)
				wantHost, wantType := m.choose(request)
				var none *NoHostError
				if err != nil && !errors.As(err, &none) {
					t.Fatalf("%s: %v", position, err)
				}
				got := types.NamespacedName{Namespace: choice.Host.Namespace, Name: choice.Host.Name}
				if got != wantHost || choice.NodeType != wantType {
					t.Fatalf("%s: %+v: got %s as %q (%v), want %s as %q", position, request, got, choice.NodeType, err, wantHost, wantType)
				}
				if err == nil {
					given++
					if diff := cmp.Diff(map[string]string(m.labels(m.types[wantType], m.hosts[wantHost])), choice.Labels); diff != "" {
						t.Fatalf("%s: labels (-want +got):\n%s", position, diff)
					}
				}
			}
			if missed := notifications.missed(inventory); missed != "" {
				t.Fatalf("%s: %s", position, missed)
			}
			if refused, ok := f.refused(inventory); ok {
				notifications.waiting = append(notifications.waiting, refused)
			}
			wantShared := map[string][]string{}
			for _, host := range m.hosts {
				for _, key := range m.exclusive(host.Namespace) {
					if holders := slices.Sorted(maps.Keys(m.holders(host, key))); len(holders) > 1 {
						wantShared[host.Namespace+key+host.Labels[key]] = holders
					}
				}
			}
			gotShared := map[string][]string{}
			for _, namespace := range []string{"metal3", "elsewhere"} {
				for _, shared := range inventory.SharedDomains(namespace, []string{"rack", "serial"}) {
					gotShared[namespace+shared.Key+shared.Value] = shared.Tenants
				}
			}
			if diff := cmp.Diff(wantShared, gotShared); diff != "" {
				t.Fatalf("%s: shared domains (-want +got):\n%s", position, diff)
			}
			for name := range m.types {
				want := m.summary(name)
				got, _ := inventory.Summary(name)
				if heard := told[name].LastClaim; heard != got.LastClaim {
					t.Fatalf("%s: listeners know claim %d of %s, the last is %d", position, heard, name, got.LastClaim)
				}
				told := told[name]
				for _, summary := range []*Summary{&told, &got} {
					summary.Claims, summary.LastClaim = 0, 0 // the model does not number claims
				}
				if diff := cmp.Diff(want, told); diff != "" {
					t.Fatalf("%s: summary of %s as listeners see it (-want +got):\n%s", position, name, diff)
				}
				if !cmp.Equal(want, got) {
					t.Fatalf("%s: summary of %s (-want +got):\n%s", position, name, cmp.Diff(want, got))
				}
			}
			if len(told) != len(m.types) {
				t.Fatalf("%s: listeners know %d types, there are %d", position, len(told), len(m.types))
			}
		}
	}
	if given < histories {
		t.Errorf("only %d hosts were given in %d histories: the test tests nothing", given, histories)
	}
}
