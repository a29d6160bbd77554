// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package charts holds the Helm charts: karpenter-metal3 for the management cluster, and karpenter-metal3-tenant for
// each tenant. Helm reads only a chart's folder, so the CRDs, rights, admission policies and the webhook's
// configuration are copied into it. This package has the list of copies, and its test finds stale ones. It also makes what Artifact Hub
// is told of a chart; the READMEs are made of the values by helm-docs.
package charts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/scheduler"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
)

const (
	// Management is the folder of the chart for the management cluster.
	Management = "karpenter-metal3"
	// Tenant is the folder of the chart for a tenant.
	Tenant = "karpenter-metal3-tenant"
	// Generated is the folder in a chart that has only generated files.
	Generated = "files/generated"

	head = "# Copyright The karpenter-provider-metal3 Authors.\n# SPDX-License-Identifier: Apache-2.0\n#\n# Made of %s by `make generate`. " +
		"Do not edit.\n"
)

// definitionsOf are the definitions of the charts.
var definitionsOf = []struct {
	chart, source string
	load          func() ([]*apiextensionsv1.CustomResourceDefinition, error)
}{
	{Management, "pkg/apis/crds", apis.ManagementCRDs},
	{Tenant, "pkg/apis/crds", apis.TenantCRDs},
	{Tenant, "Karpenter's definitions, with another default of expireAfter (pkg/apis),", apis.KarpenterCRDs},
}

// Files are the files that are copied into the charts, by path under charts/.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	for chart, roles := range map[string][]string{
		Management: {"manager.yaml", "manager-webhook.yaml", "webhook.yaml", "provider-management.yaml", "provider-dra-management.yaml"},
		Tenant:     {"provider-management.yaml", "provider-dra-management.yaml", "provider-tenant.yaml", "provider-dra-tenant.yaml"},
	} {
		for _, name := range roles {
			content, err := rbac.Files.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("reading the rights, %w", err)
			}
			add(files, chart, "rbac/"+name, "config/rbac/"+name, content)
		}
	}
	add(files, Management, "webhook.yaml", "config/webhook/management.yaml", []byte(webhook.Template()))
	add(files, Management, "webhook-mutating.yaml", "config/webhook/mutating.yaml", []byte(webhook.MutatingTemplate()))
	for chart, pattern := range map[string]string{Management: "*.yaml", Tenant: "tenant/*.yaml"} {
		policies, err := fs.Glob(policy.Files, pattern)
		if err != nil {
			return nil, fmt.Errorf("listing the admission policies, %w", err)
		}
		for _, name := range policies {
			content, err := policy.Files.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("reading the admission policies, %w", err)
			}
			add(files, chart, "policy/"+path.Base(name), "config/policy/"+name, content)
		}
	}
	add(files, Tenant, "scheduler-config.yaml", "config/scheduler/packing.yaml", scheduler.Packing)
	for _, definitions := range definitionsOf {
		crds, err := definitions.load()
		if err != nil {
			return nil, err
		}
		for _, crd := range crds {
			content, err := kept(crd)
			if err != nil {
				return nil, fmt.Errorf("writing the definition %s, %w", crd.Name, err)
			}
			add(files, definitions.chart, "crds/"+crd.Name+".yaml", definitions.source, content)
		}
	}
	return files, nil
}

// annotationsHead begins the part of a Chart.yaml that is generated.
const annotationsHead = "  # The rest is made by `make generate`.\n"

// programs are those of the charts, which have images of the same names.
var programs = map[string][]string{Management: {"manager", "webhook", "page"}, Tenant: {"provider"}}

// Metadata is the Chart.yaml of a chart, with what Artifact Hub is told of its definitions and images in its last part.
func Metadata(chart string, metadata, values []byte) ([]byte, error) {
	written, _, found := strings.Cut(string(metadata), annotationsHead)
	if !found {
		return nil, fmt.Errorf("the Chart.yaml of %s has no line %q", chart, strings.TrimSpace(annotationsHead))
	}
	written += annotationsHead
	var release struct{ AppVersion string }
	var defaults struct{ Image struct{ Registry string } }
	if err := errors.Join(yaml.Unmarshal(metadata, &release), yaml.Unmarshal(values, &defaults)); err != nil {
		return nil, fmt.Errorf("reading the Chart.yaml and the values of %s, %w", chart, err)
	}
	var images []map[string]any
	for _, program := range programs[chart] {
		images = append(images, map[string]any{"name": program, "platforms": []string{"linux/amd64", "linux/arm64"},
			"image": fmt.Sprintf("%s/%s:%s", defaults.Image.Registry, program, release.AppVersion)})
	}
	var definitions []map[string]string
	for _, origin := range definitionsOf {
		if origin.chart != chart {
			continue
		}
		crds, err := origin.load()
		if err != nil {
			return nil, err
		}
		for _, crd := range crds {
			kind := crd.Spec.Names.Kind
			for _, version := range crd.Spec.Versions {
				if !version.Storage {
					continue
				}
				words := strings.Join(strings.Fields(version.Schema.OpenAPIV3Schema.Description), " ")
				sentence, _, _ := strings.Cut(words, ". ")
				definitions = append(definitions, map[string]string{"kind": kind, "version": version.Name, "name": crd.Name,
					"displayName": kind, "description": cmp.Or(strings.TrimSuffix(sentence, "."), kind+" of "+crd.Spec.Group)})
			}
		}
	}
	for _, annotation := range []struct {
		key   string
		value any
	}{{"crds", definitions}, {"images", images}} {
		text, err := yaml.Marshal(annotation.value)
		if err != nil {
			return nil, fmt.Errorf("writing the annotation %s of %s, %w", annotation.key, chart, err)
		}
		indented := strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    ")
		written += fmt.Sprintf("  artifacthub.io/%s: |\n    %s\n", annotation.key, indented)
	}
	return []byte(written), nil
}

func add(files map[string][]byte, chart, name, source string, content []byte) {
	files[path.Join(chart, Generated, name)] = append(fmt.Appendf(nil, head, source), content...)
}

// kept is a CRD that stays when its release is uninstalled: deleting a CRD deletes all its objects, and with them the
// claims on servers.
func kept(crd *apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	crd = crd.DeepCopy()
	crd.APIVersion, crd.Kind = apiextensionsv1.SchemeGroupVersion.String(), "CustomResourceDefinition"
	if crd.Annotations == nil {
		crd.Annotations = map[string]string{}
	}
	crd.Annotations["helm.sh/resource-policy"] = "keep"
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	return yaml.Marshal(content)
}
