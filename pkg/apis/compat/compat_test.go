// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// structsWithoutEffect are the structs of the API whose fields have no effect, found by their names.
func structsWithoutEffect(t *testing.T) map[reflect.Type]bool {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	seen, found := map[reflect.Type]bool{}, map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(from reflect.Type) {
		switch from.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(from.Elem())
		case reflect.Struct:
			if seen[from] || from.PkgPath() != apiPackage {
				return
			}
			seen[from] = true
			if strings.HasPrefix(from.Name(), noEffect) {
				found[from] = true
			}
			for i := range from.NumField() {
				visit(from.Field(i).Type)
			}
		}
	}
	for _, kind := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		visit(kind)
	}
	return found
}

// TestDecisions: each field without an effect is decided on, and no decision is on anything else.
func TestDecisions(t *testing.T) {
	var fields []string
	for structure := range structsWithoutEffect(t) {
		if _, whole := decisions[structure.Name()+".*"]; whole {
			fields = append(fields, structure.Name()+".*")
			continue
		}
		for i := range structure.NumField() {
			fields = append(fields, structure.Name()+"."+fieldName(structure.Field(i)))
		}
	}
	if len(fields) < 15 {
		t.Fatalf("found %d fields: the search finds nothing", len(fields))
	}
	slices.Sort(fields)
	if diff := cmp.Diff(fields, slices.Sorted(maps.Keys(decisions))); diff != "" {
		t.Errorf("fields, and decisions on them (-fields +decisions):\n%s", diff)
	}
}

// What vCluster itself syncs, in the order of the API.
var wantFromHost = strings.Fields("events ingressClasses gatewayClasses gateways runtimeClasses priorityClasses " +
	"storageClasses volumeSnapshotClasses csiNodes csiDrivers csiStorageCapacities configMaps secrets customResources")
var wantToHost = strings.Fields("pods secrets configMaps services endpoints endpointSlices ingresses gatewayApi " +
	"serviceAccounts persistentVolumeClaims persistentVolumes volumeSnapshots volumeSnapshotContents storageClasses " +
	"podDisruptionBudgets priorityClasses networkPolicies namespaces customResources")

// inSync are the warned fields of a sync in which these are empty objects.
func inSync(fromHost, toHost []string) (fields []string) {
	for _, name := range fromHost {
		fields = append(fields, "spec.sync.fromHost."+name+": {}")
	}
	for _, name := range toHost {
		fields = append(fields, "spec.sync.toHost."+name+": {}")
	}
	return fields
}

// TestWarned: each field that is set is found where it stands, and has a sentence; what a decision accepts is not.
func TestWarned(t *testing.T) {
	const ownership = "owner: {team: infra, user: ada}, access: [{name: ops, verbs: [get, use], subresources: [status], " +
		"users: [ada], teams: [ml]}, {verbs: [get], users: [bob]}]"
	owners := []string{"spec.owner: team infra, user ada", "spec.access: ops: get, use on status for ada, ml; get for bob"}
	for name, tc := range map[string]struct {
		reason string
		object metav1.Object
		spec   string
		want   []string
	}{
		"Machine": {"beside fields that have an effect", &v1alpha1.Machine{},
			"{nodeTypeRef: {name: a}, " + ownership + "}", owners},
		"OSImage":  {"embedded in each of four kinds", &v1alpha1.OSImage{}, "{" + ownership + "}", owners},
		"SSHKey":   {"embedded in each of four kinds", &v1alpha1.SSHKey{}, "{" + ownership + "}", owners},
		"Template": {"embedded in each of four kinds", &v1alpha1.MachineConfigTemplate{}, "{" + ownership + "}", owners},
		"Empty":    {"it says nothing", &v1alpha1.Machine{}, "{owner: {}, access: []}", nil},
		"NodeProvider": {"in the items of a list, too", &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "p"}},
			"{terraform: {nodeTemplate: {}}, metal3: {clusterRef: {cluster: c}, deploy: {a: 1}, neutronEnabled: true, netris: {}, " +
				"nodeTypes: [{name: a, providerRef: p}, {name: b, providerRef: q}, {name: c}]}}",
			[]string{"spec.metal3.clusterRef.cluster: c", `spec.metal3.deploy: {"a":1}`, "spec.metal3.neutronEnabled: true",
				"spec.metal3.netris: {}", "spec.metal3.nodeTypes[1].providerRef: q", `spec.terraform: {"nodeTemplate":{}}`}},
		"OtherKinds": {"what the reference has besides Metal3", &v1alpha1.NodeProvider{},
			"{bcm: {}, kubeVirt: {}, clusterAPI: {}, terraform: {}}",
			[]string{"spec.terraform: {}", "spec.bcm: {}", "spec.kubeVirt: {}", "spec.clusterAPI: {}"}},
		"OtherSync": {"vCluster's own", &v1alpha1.TenantCluster{}, `
            {sync: {fromHost: {events: {}, ingressClasses: {}, gatewayClasses: {}, gateways: {}, runtimeClasses: {},
            priorityClasses: {}, storageClasses: {}, volumeSnapshotClasses: {}, csiNodes: {}, csiDrivers: {},
            csiStorageCapacities: {}, configMaps: {}, secrets: {}, customResources: {}}, toHost: {pods: {}, secrets:
            {}, configMaps: {}, services: {}, endpoints: {}, endpointSlices: {}, ingresses: {}, gatewayApi: {},
            serviceAccounts: {}, persistentVolumeClaims: {}, persistentVolumes: {}, volumeSnapshots: {},
            volumeSnapshotContents: {}, storageClasses: {}, podDisruptionBudgets: {}, priorityClasses: {},
            networkPolicies: {}, namespaces: {}, customResources: {}}}}`,
			inSync(wantFromHost, wantToHost)},
		"NotSet": {"false is as left out", &v1alpha1.NodeProvider{}, "{metal3: {neutronEnabled: false, deploy: null}}", nil},
		"TenantCluster": {"below pointers", &v1alpha1.TenantCluster{},
			"{privateNodes: {joinNode: {}, daemon: {}, vpn: {}, autoUpgrade: {enabled: true, binariesPath: a, " +
				"cniBinariesPath: a, concurrency: 1, image: a, imagePullPolicy: a, nodeSelector: {a: b}, " +
				"podSecurityContext: {}, containerSecurityContext: {}}, kubelet: {config: {maxPods: 5, kubeReserved: " +
				"{cpu: 1}, shutdownGracePeriod: 30s}}}, sync: {fromHost: {events: {enabled: true}, " +
				"deviceClasses: {patches: [{path: a}, {path: b}]}, nodes: {enabled: true, selector: {all: true}, " +
				"syncBackChanges: true, clearImageStatus: true, patches: [{path: e}]}}, " +
				"toHost: {pods: {}, resourceClaims: {patches: [{path: c}]}, resourceClaimTemplates: {patches: [{path: d}]}}}}",
			[]string{"spec.privateNodes.autoUpgrade.binariesPath: a", "spec.privateNodes.autoUpgrade.cniBinariesPath: a",
				"spec.privateNodes.autoUpgrade.concurrency: 1", "spec.privateNodes.autoUpgrade.containerSecurityContext: {}",
				"spec.privateNodes.autoUpgrade.image: a",
				"spec.privateNodes.autoUpgrade.imagePullPolicy: a", "spec.privateNodes.autoUpgrade.nodeSelector: a b",
				"spec.privateNodes.autoUpgrade.podSecurityContext: {}",
				"spec.privateNodes.joinNode: {}", "spec.privateNodes.daemon: {}", "spec.privateNodes.vpn: {}",
				"spec.sync.fromHost.deviceClasses.patches: a, b", "spec.sync.fromHost.nodes.syncBackChanges: true",
				"spec.sync.fromHost.nodes.clearImageStatus: true", `spec.sync.fromHost.nodes.selector: {"all":true}`,
				"spec.sync.fromHost.nodes.patches: e", `spec.sync.fromHost.events: {"enabled":true}`,
				"spec.sync.toHost.resourceClaims.patches: c", "spec.sync.toHost.resourceClaimTemplates.patches: d",
				"spec.sync.toHost.pods: {}", `spec.privateNodes.kubelet.config.kubeReserved: {"cpu":1}`,
				`spec.privateNodes.kubelet.config.shutdownGracePeriod: "30s"`}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := yaml.UnmarshalStrict([]byte("spec: "+tc.spec), tc.object); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, set := range WithoutEffect(tc.object) {
				got = append(got, set.Path.String()+": "+set.Value)
				if set.Instead == "" || set.TooLong {
					t.Errorf("%s: %+v", tc.reason, set)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestTooLong: what is kept and not read is bounded.
func TestTooLong(t *testing.T) {
	for length, want := range map[int]bool{maxOpaque: false, maxOpaque + 1: true} {
		raw := []byte(`"` + strings.Repeat("x", length-2) + `"`)
		set := WithoutEffect(&v1alpha1.TenantCluster{Spec: v1alpha1.TenantClusterSpec{PrivateNodes: &v1alpha1.PrivateNodes{
			NoEffectPrivateNodes: v1alpha1.NoEffectPrivateNodes{VPN: &v1alpha1.Opaque{JSON: apiextensionsv1.JSON{Raw: raw}}}}}})
		if len(set) != 1 || set[0].TooLong != want {
			t.Errorf("%d bytes: %d fields, too long is not %t", length, len(set), want)
		}
	}
}

// TestTypeNames: the reference writes PROVIDER.TYPE, and a type may have such a name itself.
func TestTypeNames(t *testing.T) {
	exists := func(name string) bool { return name == "p.own" }
	got := TypeNames([]string{"p.a", "p.own", "q.a", "p", "a"}, "p", exists)
	if diff := cmp.Diff([]string{"a", "p.own", "q.a", "p", "a"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
