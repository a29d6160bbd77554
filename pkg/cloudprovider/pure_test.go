// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

type requirement = karpv1.NodeSelectorRequirementWithMinValues

func TestRequirementsFor(t *testing.T) {
	advertised := func(key string) bool { return key == "example.com/fabric" }
	for name, tc := range map[string]struct {
		reason string
		in     []requirement
		want   []corev1.NodeSelectorRequirement
	}{
		"Karpenter's own": {
			reason: "no host knows pools, capacity types, reservations, or that a type has accelerators",
			in: []requirement{
				{Key: karpv1.NodePoolLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"gpu"}},
				{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"reserved"}},
				{Key: v1alpha1.ReservationIDLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"a100"}},
				{Key: v1alpha1.AcceleratedLabelKey, Operator: corev1.NodeSelectorOpDoesNotExist},
				{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"a100"}},
			},
			want: []corev1.NodeSelectorRequirement{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn,
				Values: []string{"a100"}}},
		},
		"labels for the node": {
			reason: "a label that the pool puts on nodes is nothing that a server has",
			in: []requirement{
				{Key: "team", Operator: corev1.NodeSelectorOpIn, Values: []string{"vision"}},
				{Key: "example.com/fabric", Operator: corev1.NodeSelectorOpIn, Values: []string{"ib"}},
			},
			want: []corev1.NodeSelectorRequirement{{Key: "example.com/fabric", Operator: corev1.NodeSelectorOpIn, Values: []string{"ib"}}},
		},
		"topology that no type has": {
			reason: "a static pool is not checked by core: dropped, it would get a server somewhere else",
			in:     []requirement{{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{"r9"}}},
			want:   []corev1.NodeSelectorRequirement{{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{"r9"}}},
		},
		"another type": {
			reason: "as above: dropped, it would get a server of another tenant's",
			in:     []requirement{{Key: "type.karpenter.metal3.io/customer-a", Operator: corev1.NodeSelectorOpIn, Values: []string{"true"}}},
			want: []corev1.NodeSelectorRequirement{{Key: "type.karpenter.metal3.io/customer-a", Operator: corev1.NodeSelectorOpIn,
				Values: []string{"true"}}},
		},
		"nothing": {
			reason: "a Machine must ask for something",
			want:   []corev1.NodeSelectorRequirement{anyServer},
		},
		"ours": {
			reason: "a manager of the version before knows the alias alone",
			in:     []requirement{{Key: v1alpha1.NodeTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"a100"}}},
			want: []corev1.NodeSelectorRequirement{{Key: v1alpha1.NodeTypeLabelKey, Operator: corev1.NodeSelectorOpIn,
				Values: []string{"a100"}}},
		},
		"bounds": {
			reason: "Kubernetes knows Gt and Lt only",
			in: []requirement{
				{Key: "example.com/fabric", Operator: karpv1.NodeSelectorOpGte, Values: []string{"4"}},
				{Key: "example.com/fabric", Operator: karpv1.NodeSelectorOpLte, Values: []string{"8"}},
			},
			want: []corev1.NodeSelectorRequirement{
				{Key: "example.com/fabric", Operator: corev1.NodeSelectorOpGt, Values: []string{"3"}},
				{Key: "example.com/fabric", Operator: corev1.NodeSelectorOpLt, Values: []string{"9"}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodeClaim := &karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{Requirements: tc.in}}
			if diff := cmp.Diff(tc.want, requirementsFor(nodeClaim, advertised)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestResourcesFor(t *testing.T) {
	catalog := instancetypes.NewCatalog(instancetypes.DefaultPods)
	for name, resources := range map[string]corev1.ResourceList{
		"a100":  env.Resources("cpu", "64", "memory", "512Gi", "nvidia.com/gpu", "4"),
		"mi300": env.Resources("cpu", "96", "memory", "1Ti", "amd.com/gpu", "8"),
		"cpu":   env.Resources("cpu", "32", "memory", "128Gi"),
	} {
		nodeType := newNodeType(name)
		nodeType.Spec.Resources = resources
		nodeType.Status.Cost = nodeType.EffectiveCost()
		catalog.Set(nodeType)
	}
	types := catalog.InstanceTypes(instancetypes.NewFilter(nil, nil))
	ofTypes := func(names ...string) []requirement {
		return []requirement{{Key: v1alpha1.NodeTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: names}}
	}
	for name, tc := range map[string]struct {
		reason       string
		requests     corev1.ResourceList
		requirements []requirement
		want         corev1.ResourceList
	}{
		"pods": {
			reason:   "hosts know nothing of the number of pods",
			requests: env.Resources("cpu", "1", "nvidia.com/gpu", "1", "pods", "3"),
			want:     env.Resources("cpu", "1", "nvidia.com/gpu", "1"),
		},
		"pods that ask for nothing": {
			reason:   "they ask for no accelerator, whatever type was named",
			requests: env.Resources("pods", "3"), requirements: ofTypes("a100"), want: corev1.ResourceList{},
		},
		"static pool of a type with accelerators": {
			reason:       "naming the type is how a static pool asks for its accelerators",
			requirements: ofTypes("a100"), want: env.Resources("nvidia.com/gpu", "1"),
		},
		"static pool of two vendors": {
			reason:       "no server has both; the cheaper one is meant",
			requirements: ofTypes("mi300", "a100"), want: env.Resources("nvidia.com/gpu", "1"),
		},
		"static pool that names a plain type too": {
			reason:       "it does not insist on accelerators, so it gets none",
			requirements: ofTypes("a100", "cpu"),
		},
		"static pool that names nothing": {
			reason: "as above",
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodeClaim := &karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{
				Requirements: tc.requirements, Resources: karpv1.ResourceRequirements{Requests: tc.requests},
			}}
			if diff := cmp.Diff(tc.want, resourcesFor(nodeClaim, types)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestResultOf(t *testing.T) {
	no := func(reason string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionClaimed, Status: metav1.ConditionFalse, Reason: reason, ObservedGeneration: 1}
	}
	for name, tc := range map[string]struct {
		reason    string
		condition metav1.Condition
		status    v1alpha1.MachineStatus
		chosen    bool
		// unreadable is a choice that is none.
		unreadable bool
		want       claimResult
	}{
		"not looked at": {reason: "the Machine has no answer yet", want: pending},
		"claimed": {
			reason:    "this is success",
			condition: metav1.Condition{Type: v1alpha1.ConditionClaimed, Status: metav1.ConditionTrue},
			status:    v1alpha1.MachineStatus{ProviderID: "metal3://a/b/c"}, want: claimed,
		},
		"claimed without provider ID": {
			reason:    "core would take the NodeClaim for one that has not been launched",
			condition: metav1.Condition{Type: v1alpha1.ConditionClaimed, Status: metav1.ConditionTrue}, want: pending,
		},
		"of a later manager": {
			reason:    "whatever keeps the Machine without a server must not keep the whole tenant waiting",
			condition: no("SomethingNew"), want: noServer,
		},
		"no capacity, of an earlier spec": {
			reason: "the answer is to another question",
			condition: metav1.Condition{Type: v1alpha1.ConditionClaimed, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoCapacity,
				ObservedGeneration: 0}, want: pending,
		},
		"no capacity, but a host": {
			reason:    "a claim is half done: deleting the Machine would throw it away",
			condition: no(v1alpha1.ReasonNoCapacity), status: v1alpha1.MachineStatus{HostRef: &v1alpha1.HostReference{Name: "a100-01"}},
			want: pending,
		},
		"no capacity, but a choice": {
			reason:    "a host is being claimed: deleting the Machine would throw it away",
			condition: no(v1alpha1.ReasonNoCapacity), chosen: true, want: pending,
		},
		"no capacity, but an unreadable choice": {
			reason:    "which host was chosen is unknown, and it may be claimed",
			condition: no(v1alpha1.ReasonNoCapacity), unreadable: true, want: pending,
		},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Status: tc.status}
			if tc.unreadable {
				machine.Annotations = map[string]string{v1alpha1.ChosenHostAnnotationKey: "x"}
			}
			if tc.chosen {
				machine.SetChosenHost(v1alpha1.HostReference{Namespace: "metal3", Name: "a100-01", UID: "1"}, "a100")
			}
			if tc.condition.Type != "" {
				machine.Status.Conditions = []metav1.Condition{tc.condition}
			}
			if got, _ := resultOf(machine); got != tc.want {
				t.Errorf("got %d, want %d: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// A Machine without a server is undecided only while its server is being claimed. The reasons are those of the API that the
// manager's sources name: one that is added to them has to be added here.
func TestResultOfEveryReason(t *testing.T) {
	withoutServer := map[string]claimResult{
		v1alpha1.ReasonClaiming:       pending,
		v1alpha1.ReasonNoCapacity:     noServer,
		v1alpha1.ReasonNoMatchingType: noServer,
		v1alpha1.ReasonQuotaExceeded:  noServer,
		v1alpha1.ReasonTenantDeleting: noServer,
		v1alpha1.ReasonNoAddress:      noServer,
		v1alpha1.ReasonTooManyClaims:  noServer,
		v1alpha1.ReasonInvalidSpec:    refused,
		v1alpha1.ReasonNotAllowed:     refused,
		v1alpha1.ReasonGangIncomplete: pending,
	}
	withServer := sets.New(v1alpha1.ReasonClaimed, v1alpha1.ReasonWaitingForBootstrapData, v1alpha1.ReasonWaitingForHook,
		v1alpha1.ReasonNetworkReady, v1alpha1.ReasonProvisioning, v1alpha1.ReasonProvisioned, v1alpha1.ReasonWaitingForNode,
		v1alpha1.ReasonJoined, v1alpha1.ReasonStandAlone, v1alpha1.ReasonPoweredOff, v1alpha1.ReasonHostError, v1alpha1.ReasonHostLost,
		v1alpha1.ReasonHostDeleting, v1alpha1.ReasonDeadlineExceeded, v1alpha1.ReasonDeprovisioning, v1alpha1.ReasonNodeUnhealthy,
		v1alpha1.ReasonUpToDate, v1alpha1.ReasonNodeTypeChanged, v1alpha1.ReasonOSImageChanged, v1alpha1.ReasonUserDataChanged,
		v1alpha1.ReasonNetworkChanged, v1alpha1.ReasonNodeClassChanged, v1alpha1.ReasonTooManyGivenUp)
	// NodeTypes have these, and the last one a TenantCluster.
	notOfMachines := sets.New(v1alpha1.ReasonInvalidDevices, v1alpha1.ReasonInvalidSelector, v1alpha1.ReasonProviderNotFound,
		v1alpha1.ReasonTenantNamespace, v1alpha1.ReasonProviderSilent)
	for _, reason := range reasonsOfManager(t) {
		if notOfMachines.Has(reason) {
			continue
		}
		want, found := withoutServer[reason]
		if !found {
			if !withServer.Has(reason) {
				t.Errorf("reason %s: can a Machine have it without a server? Then say what Create makes of it", reason)
			}
			continue
		}
		machine := &v1alpha1.Machine{}
		refuses(reason, "")(machine)
		if got, _ := resultOf(machine); got != want {
			t.Errorf("reason %s: got %d, want %d", reason, got, want)
		}
	}
}

// reasonsOfManager are the values of the API's constants that the sources of the manager name.
func reasonsOfManager(t *testing.T) []string {
	t.Helper()
	values := map[string]string{}
	for _, file := range parsed(t, "../apis/v1alpha1") {
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
				values[spec.Names[0].Name] = strings.Trim(literal.Value, `"`)
			}
			return true
		})
	}
	named := sets.New[string]()
	for _, file := range slices.Concat(parsed(t, "../controllers/management/machine"), parsed(t, "../controllers/management/hosts"),
		parsed(t, "../inventory")) {
		ast.Inspect(file, func(node ast.Node) bool {
			if selector, ok := node.(*ast.SelectorExpr); ok && values[selector.Sel.Name] != "" {
				named.Insert(values[selector.Sel.Name])
			}
			return true
		})
	}
	if !named.Has(v1alpha1.ReasonNoAddress) {
		t.Fatalf("the manager's reasons are not found where they were: %v", sets.List(named))
	}
	return sets.List(named)
}

// TestAnswersThatKeepNodeClaims: as long as a NodeClaim has no provider ID, core creates no other for any pod of the tenant. So each
// answer that keeps it must end by itself.
func TestAnswersThatKeepNodeClaims(t *testing.T) {
	ends := map[string]string{
		"reasonManagementUnavailable": "the management cluster answers again",
		"reasonNodeClassUnknown":      "the provider looks at the class, within seconds of its start",
		"reasonNodePoolUnavailable":   "the tenant's cache can be read again",
		"reasonWaitingForManager":     "a manager decides, within milliseconds of its start",
	}
	kept := sets.New[string]()
	for _, file := range parsed(t, ".") {
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			if function, ok := call.Fun.(*ast.Ident); ok && function.Name == "createError" {
				reason, ok := call.Args[0].(*ast.Ident)
				if !ok {
					t.Fatal("a reason is no constant: the test cannot see it")
				}
				kept.Insert(reason.Name)
			}
			return true
		})
	}
	if diff := cmp.Diff(sets.List(sets.KeySet(ends)), sets.List(kept)); diff != "" {
		t.Errorf("answers of Create that keep the NodeClaim (-known to end, +found):\n%s", diff)
	}
}

// parsed are the sources of a package, without its tests.
func parsed(t *testing.T, directory string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

func TestGangFor(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, annotation string
		want               *v1alpha1.MachineGang
	}{
		"none":       {reason: "most pods need no others"},
		"whole":      {"each is of no use alone", `[{"name":"a","minCount":2}]`, &v1alpha1.MachineGang{Name: "a", MinCount: 2}},
		"one server": {"there is nothing to wait for", `[{"name":"a","minCount":1}]`, nil},
		"no size":    {"each server is of use by itself", `[{"name":"a","minCount":0}]`, nil},
		"shared":     {"it would be counted for one of both", `[{"name":"a","minCount":2},{"name":"b","minCount":2}]`, nil},
		"long name":  {"the Machine would be refused", `[{"name":"` + strings.Repeat("a", v1alpha1.MaxGangName+1) + `","minCount":2}]`, nil},
		"by hand":    {"somebody has changed it", `train`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			nodeClaim := &karpv1.NodeClaim{}
			nodeClaim.Annotations = map[string]string{v1alpha1.GangsAnnotationKey: tc.annotation}
			if diff := cmp.Diff(tc.want, gangFor(nodeClaim)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
