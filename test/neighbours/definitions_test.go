// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/samber/lo"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// others are kinds of projects whose definitions are in no module that can be had: their names, as facts.
var others = []*apiextensionsv1.CustomResourceDefinition{
	// Cluster API provider Metal3.
	definition("infrastructure.cluster.x-k8s.io", "v1beta1", "Metal3Machine", "metal3machines", "m3m", "m3machine", "metal3m"),
	definition("infrastructure.cluster.x-k8s.io", "v1beta1", "Metal3MachineTemplate", "metal3machinetemplates", "m3mt", "metal3mt"),
	definition("infrastructure.cluster.x-k8s.io", "v1beta1", "Metal3Cluster", "metal3clusters", "m3c", "m3cluster", "metal3c"),
	definition("infrastructure.cluster.x-k8s.io", "v1beta1", "Metal3Data", "metal3datas", "m3d", "m3data", "metal3d"),
	// Metal3's address manager.
	definition("ipam.metal3.io", "v1alpha1", "IPAddress", "ipaddresses", "ipa", "m3ipa", "metal3ipa"),
	definition("ipam.metal3.io", "v1alpha1", "IPPool", "ippools", "ipp", "m3ipp", "metal3ipp"),
	// OpenShift.
	definition("machine.openshift.io", "v1beta1", "Machine", "machines"),
	definition("machine.openshift.io", "v1beta1", "MachineSet", "machinesets"),
	definition("machineconfiguration.openshift.io", "v1", "MachineConfig", "machineconfigs", "mc"),
	// k0smotron.
	definition("k0smotron.io", "v1beta1", "Cluster", "clusters", "kmc"),
	// vCluster Platform.
	definition("storage.loft.sh", "v1", "NodeProvider", "nodeproviders"),
	definition("storage.loft.sh", "v1", "NodeType", "nodetypes"),
	definition("storage.loft.sh", "v1", "NodeClaim", "nodeclaims"),
}

func definition(group, version, kind, plural string, short ...string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group, Annotations: map[string]string{
			// The API server asks for it in groups of Kubernetes.
			apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, a test",
		}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural, ShortNames: short},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true),
				}},
			}},
		},
	}
}

// install adds the definitions of the neighbours to an API server, and returns their groups.
func install(t *testing.T, environment *env.Environment) sets.Set[string] {
	t.Helper()
	clusterAPI := filepath.Join("..", "..", "bin", "crds", "clusterapi")
	if _, err := os.Stat(clusterAPI); err != nil {
		t.Fatalf("run `make tools`, %v", err)
	}
	// What is installed gets a version, and is installed by several tests.
	copies := lo.Map(others, func(crd *apiextensionsv1.CustomResourceDefinition, _ int) *apiextensionsv1.CustomResourceDefinition {
		return crd.DeepCopy()
	})
	installed, err := envtest.InstallCRDs(environment.Config, envtest.CRDInstallOptions{
		Paths: []string{clusterAPI}, CRDs: copies, ErrorIfPathMissing: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	groups := sets.New("networking.k8s.io") // the API server's own IPAddress
	for _, definition := range installed {
		groups.Insert(definition.Spec.Group)
	}
	return groups
}
