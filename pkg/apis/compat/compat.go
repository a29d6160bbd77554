// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package compat handles YAML of the reference that this API does not need. It accepts fields without an effect, with
// or without a warning, and converts other forms of a field. The webhook warns and converts, the schemas admit the
// other forms, and conditions name the ignored fields. The fields without an effect are in the files *_noeffect.go of
// the API.
package compat

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// maxOpaque is the largest object, in bytes, that is kept and not read. Each controller has it in memory.
const maxOpaque = 64 << 10

const (
	movedByHook = "a hook or an HTTP endpoint moves servers into the network of a TenantCluster, see docs/network.md"
	ofVCluster  = "it is of vCluster's own sync: write it into the vcluster.yaml"
	reinstalled = "servers are installed again, within the budgets of their pools"
)

// decisions say for each field without an effect what to do instead. The key is the struct and the field; the name *
// stands for all fields of a struct. A warning shows the sentence, with the value in words for %s. A field with an
// empty sentence is accepted without a warning.
var decisions = map[string]string{
	"NoEffectOwnership.owner": "say by Kubernetes RBAC what %s may do",
	"NoEffectOwnership.access": "give rights by Kubernetes RBAC, and say in spec.tenantProperties of a TenantCluster " +
		"what its tenant may name (%s)",
	"NoEffectStatus.status": "",
	"NoEffectClusterRef.cluster": "a manager serves the BareMetalHosts of the cluster that it runs in: install one " +
		"in the cluster that has them",
	"NoEffectMetal3Fleet.deploy": "install Metal3, and DHCP where you need it, as docs/metal3.md says. Remove it if " +
		"it has secrets: the providers of all tenants read it",
	"NoEffectMetal3Fleet.neutronEnabled": movedByHook,
	"NoEffectMetal3Fleet.netris":         movedByHook,
	"NoEffectNodeTypeTemplate.providerRef": "a NodeType is of the NodeProvider that lists it: list it there, or " +
		"leave providerRef out",
	"NoEffectPrivateNodes.joinNode": "write commands into runcmd of the property " + v1alpha1.PropertyUserData + ", which run " +
		"before the join, kubeletExtraArgs into kubeletArgs of the pools, and prepare containerd in the image",
	"NoEffectPrivateNodes.daemon": "no program of vCluster runs on the nodes: have spec.apiServerEndpoint lead to all " +
		"API servers, by a load balancer or a virtual address",
	"NoEffectPrivateNodes.vpn": "there is no VPN: servers reach spec.apiServerEndpoint through their own network",

	"NoEffectAutoUpgrade.*": reinstalled,
	"NoEffectNodeProvider.*": "the servers of a NodeProvider are BareMetalHosts: run the Karpenter provider of that " +
		"infrastructure in the tenant's cluster beside this one",
	"NoEffectNodesTemplate.requirements": "", // the schema refuses them
	"NoEffectSyncToHost.*":               ofVCluster,
	"NoEffectSyncFromHost.*":             ofVCluster,
	"NoEffectNodeSync.*":                 ofVCluster,
	"NoEffectSync.patches":               "what is synced has these fields unchanged (%s)",
}

// Property says what to do instead of setting a property that has no meaning, in our domain or in the reference's.
func Property(name string) string {
	if name == v1alpha1.ReferenceNetworkEnvironment {
		return "there are no NodeEnvironments: write its properties into the pool, the NodeType or the NodeProvider"
	}
	return "it is a label of the nodes at most: for a property of your own use a domain of your own"
}

// Field is a field that is set and has no effect.
type Field struct {
	Path *field.Path
	// Instead says what to do instead. %s in it stands for Value, the value in words.
	Instead, Value string
	// TooLong marks an object that is longer than maxOpaque.
	TooLong bool
}

// WithoutEffect returns the fields of an object's spec that are set, have no effect and need a warning, in the order of
// the API. The fields of a configuration of the kubelet come last. The providerRef of a type in a NodeProvider needs no
// warning if it names that NodeProvider.
func WithoutEffect(object metav1.Object) []Field {
	fields := visit(nil, field.NewPath("spec"), reflect.Indirect(reflect.ValueOf(object)).FieldByName("Spec"))
	if tenant, is := object.(*v1alpha1.TenantCluster); is {
		fields = append(fields, ReadKubeletConfig(tenant.Spec.PrivateNodes).WithoutEffect...)
	}
	return slices.DeleteFunc(fields, func(f Field) bool {
		return f.Instead == decisions["NoEffectNodeTypeTemplate.providerRef"] && f.Value == object.GetName()
	})
}

// noEffect begins the names of the structs that hold fields without an effect.
const noEffect = "NoEffect"

var apiPackage = reflect.TypeFor[v1alpha1.Machine]().PkgPath()

// visit appends the fields without an effect that are set below a value.
func visit(found []Field, path *field.Path, value reflect.Value) []Field {
	value = reflect.Indirect(value) // not valid, and of no kind, if it is a nil pointer
	switch {
	case value.Kind() == reflect.Slice && value.Type().Elem().PkgPath() == apiPackage:
		for i := range value.Len() {
			found = visit(found, path.Index(i), value.Index(i))
		}
	case value.Kind() == reflect.Struct && value.Type().PkgPath() == apiPackage:
		structure := value.Type().Name()
		for i := range value.NumField() {
			name, fieldPath := fieldName(value.Type().Field(i)), path
			if name != "" {
				fieldPath = path.Child(name)
			}
			if !strings.HasPrefix(structure, noEffect) {
				found = visit(found, fieldPath, value.Field(i))
				continue
			}
			instead := cmp.Or(decisions[structure+"."+name], decisions[structure+".*"])
			if text := inWords(value.Field(i)); text != "" && instead != "" {
				_, opaque := value.Field(i).Interface().(*v1alpha1.Opaque)
				found = append(found, Field{Path: fieldPath, Instead: instead, Value: text, TooLong: opaque && len(text) > maxOpaque})
			}
		}
	}
	return found
}

// fieldName returns the name of a field in JSON, empty for an embedded struct.
func fieldName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// inWords returns a value as a warning shows it, empty if the value is not set. An object that nothing reads is
// returned as it was written.
func inWords(value reflect.Value) string {
	if value.IsZero() {
		return ""
	}
	switch value := value.Interface().(type) {
	case *v1alpha1.Opaque:
		return string(value.Raw)
	case map[string]string:
		keys := slices.Sorted(maps.Keys(value))
		return strings.Join(lo.Map(keys, func(key string, _ int) string { return key + " " + value[key] }), ", ")
	case []v1alpha1.SyncPatch:
		return strings.Join(lo.Map(value, func(patch v1alpha1.SyncPatch, _ int) string { return patch.Path }), ", ")
	case []v1alpha1.AccessRule:
		return strings.Join(lo.Map(value, ruleInWords), "; ")
	default:
		return fmt.Sprint(value)
	}
}

// ruleInWords describes a rule to a person who has to write it as a Role.
func ruleInWords(rule v1alpha1.AccessRule, _ int) string {
	text := strings.Join(rule.Verbs, ", ")
	if rule.Name != "" {
		text = rule.Name + ": " + text
	}
	if len(rule.Subresources) > 0 {
		text += " on " + strings.Join(rule.Subresources, ", ")
	}
	return text + " for " + strings.Join(slices.Concat(rule.Users, rule.Teams), ", ")
}
