// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"encoding/json"
	"fmt"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Versions of Kubernetes in docs/compatibility.md.
const (
	// MinimumKubernetes is the oldest version that is supported.
	MinimumKubernetes = "1.30"
	// TestedKubernetes is the newest version that the tests run with.
	TestedKubernetes = "1.37"
)

// Remedies that install what is missing.
const (
	metal3Remedy = "kubectl apply -k baremetal-operator (docs/metal3.md)"
	// Without --reset-then-reuse-values, an upgrade that sets a value would forget all others.
	chartRemedy = "helm upgrade --install karpenter-metal3 charts/karpenter-metal3 --namespace karpenter-metal3 --create-namespace " +
		"--reset-then-reuse-values"
)

func (c *Cluster) kubernetes() []Result {
	server, err := c.Discovery.ServerVersion()
	if err != nil {
		return []Result{unreadable(kubernetesCheck, err)}
	}
	return []Result{kubernetesVersion(server.GitVersion)}
}

const kubernetesCheck = "Kubernetes"

func kubernetesVersion(text string) Result {
	result := Result{Check: kubernetesCheck, Level: OK, Message: text}
	found, err := version.ParseGeneric(text)
	switch {
	case err != nil:
		result.Level, result.Message = Skip, fmt.Sprintf("cannot check: the API server says that its version is %q", text)
	case found.LessThan(version.MustParseGeneric(MinimumKubernetes)):
		result.Level, result.Message = Fail, fmt.Sprintf("%s is older than %s, which is asked for", text, MinimumKubernetes)
		result.Remedy = "upgrade the management cluster (docs/compatibility.md)"
	case found.Minor() > version.MustParseGeneric(TestedKubernetes).Minor():
		result.Level, result.Message = Warn, fmt.Sprintf("%s is newer than %s, which the tests run with", text, TestedKubernetes)
	}
	return result
}

// hostFields are the fields of BareMetalHosts that the manager needs.
var hostFields = []string{
	"spec.automatedCleaningMode", "spec.bmc.address", "spec.bootMACAddress", "spec.consumerRef", "spec.customDeploy",
	"spec.externallyProvisioned", "spec.image.checksum", "spec.image.checksumType", "spec.image.format", "spec.image.url",
	"spec.metaData", "spec.networkData", "spec.online", "spec.userData",
	"status.errorMessage", "status.errorType", "status.hardware.cpu.arch", "status.hardware.cpu.count", "status.hardware.nics[].mac",
	"status.hardware.ramMebibytes", "status.hardware.storage[].sizeBytes", "status.operationalStatus", "status.poweredOn",
	"status.provisioning.image.url", "status.provisioning.state",
}

// definitions checks Metal3's kinds and ours, and their fields.
func (c *Cluster) definitions() []Result {
	metal3, err := c.served(bmov1alpha1.GroupVersion)
	results := []Result{definition(bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), metal3, err, sets.New(hostFields...), false,
		metal3Remedy, "upgrade the baremetal-operator that is there (docs/compatibility.md)")}
	ours, err := apis.ManagementCRDs()
	if err != nil {
		return append(results, unreadable("CRDs", err))
	}
	served, servedErr := c.served(v1alpha1.GroupVersion)
	var wrong []Result
	for _, crd := range ours {
		fields, err := fieldsOf(crd)
		if err != nil {
			return append(results, unreadable("CRDs", err))
		}
		kind := v1alpha1.GroupVersion.WithKind(crd.Spec.Names.Kind)
		if result := definition(kind, served, servedErr, fields, true, chartRemedy, chartRemedy); result.Level != OK {
			wrong = append(wrong, result)
		}
	}
	if len(wrong) == 0 {
		wrong = []Result{{Check: "CRDs of " + v1alpha1.Group, Level: OK, Message: fmt.Sprintf("%d, with the fields of this version", len(ours))}}
	}
	return append(results, wrong...)
}

// definition judges a kind. It must be served with the fields. If exact is set, it must have no other fields.
func definition(kind schema.GroupVersionKind, served map[string]sets.Set[string], err error, fields sets.Set[string], exact bool,
	install, upgrade string) Result {
	result := Result{Check: fmt.Sprintf("CRD %s (%s)", kind.Kind, kind.GroupVersion()), Level: OK, Message: "has the fields that are needed"}
	if err != nil {
		return unreadable(result.Check, err)
	}
	has, found := served[kind.Kind]
	missing, more := sets.List(fields.Difference(has)), sets.List(has.Difference(fields))
	switch {
	case !found:
		result.Level, result.Message, result.Remedy = Fail, "is not installed", install
	case has == nil: // the API server publishes them some seconds after the kind
		result.Level, result.Message = Skip, "cannot check: the API server has not published its fields"
	case len(missing) > 0:
		result.Level, result.Remedy = Fail, upgrade
		result.Message = "is older than this program: it lacks " + conditions.List(missing, maxNamed)
	case exact && len(more) > 0:
		result.Level, result.Message = Warn, "is newer than this program: it also has "+conditions.List(more, maxNamed)
		result.Remedy = "upgrade the manager to the version of the definitions (docs/install.md)"
	}
	return result
}

// served returns the kinds of a version that the API server serves, each with its fields, nil if unpublished.
func (c *Cluster) served(version schema.GroupVersion) (map[string]sets.Set[string], error) {
	served := map[string]sets.Set[string]{}
	resources, err := c.Discovery.ServerResourcesForGroupVersion(version.String())
	if apierrors.IsNotFound(err) {
		return served, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the kinds of %s, %w", version, err)
	}
	for _, resource := range resources.APIResources {
		served[resource.Kind] = nil
	}
	published, err := c.Discovery.OpenAPIV3().Paths()
	if err != nil {
		return nil, fmt.Errorf("reading the OpenAPI document, %w", err)
	}
	group, found := published["apis/"+version.String()]
	if !found {
		return served, nil
	}
	text, err := group.Schema("application/json")
	if err != nil {
		return nil, fmt.Errorf("reading the OpenAPI document of %s, %w", version, err)
	}
	var document struct {
		Components struct {
			Schemas map[string]struct {
				node
				Kinds []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("parsing the OpenAPI document of %s, %w", version, err)
	}
	for _, definition := range document.Components.Schemas {
		for _, kind := range definition.Kinds {
			if _, is := served[kind.Kind]; is && kind.GroupVersion() == version {
				served[kind.Kind] = fieldsBelow(&definition.node)
			}
		}
	}
	return served, nil
}

// maxNamed is how many things a message names.
const maxNamed = 5

// node is the part of an OpenAPI schema that the checks read.
type node struct {
	Properties map[string]*node `json:"properties"`
	Items      *node            `json:"items"`
}

// paths collects the fields below a node.
func (n *node) paths(prefix string, found sets.Set[string]) {
	for name, property := range n.Properties {
		path := prefix + name
		found.Insert(path)
		for below := property; below != nil; below, path = below.Items, path+"[]" {
			below.paths(path+".", found)
		}
	}
}

// fieldsBelow returns the fields of an object, without the fields of every object.
func fieldsBelow(root *node) sets.Set[string] {
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(root.Properties, name)
	}
	fields := sets.New[string]()
	root.paths("", fields)
	return fields
}

// fieldsOf returns the fields of a definition.
func fieldsOf(crd *apiextensionsv1.CustomResourceDefinition) (sets.Set[string], error) {
	i := slices.IndexFunc(crd.Spec.Versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return version.Name == v1alpha1.GroupVersion.Version
	})
	if i < 0 || crd.Spec.Versions[i].Schema == nil {
		return nil, fmt.Errorf("definition %s has no schema of version %s", crd.Name, v1alpha1.GroupVersion.Version)
	}
	root := &node{}
	text, err := json.Marshal(crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
	if err == nil {
		err = json.Unmarshal(text, root)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the schema of definition %s, %w", crd.Name, err)
	}
	return fieldsBelow(root), nil
}
