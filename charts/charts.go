// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package charts holds the Helm charts: karpenter-metal3 for the management cluster, and karpenter-metal3-tenant for
// each tenant. Helm reads only a chart's folder, so the CRDs, rights, admission policies and the webhook's
// configuration are copied into it. This package has the list of copies, and its test finds stale ones.
package charts

import (
	"fmt"
	"io/fs"
	"path"

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

// Files are the files that are copied into the charts, by path under charts/.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	for chart, roles := range map[string][]string{
		Management: {"manager.yaml", "webhook.yaml", "provider-management.yaml", "provider-dra-management.yaml"},
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
	for _, definitions := range []struct {
		chart, source string
		load          func() ([]*apiextensionsv1.CustomResourceDefinition, error)
	}{
		{Management, "pkg/apis/crds", apis.ManagementCRDs},
		{Tenant, "pkg/apis/crds", apis.TenantCRDs},
		{Tenant, "Karpenter's definitions, with another default of expireAfter (pkg/apis),", apis.KarpenterCRDs},
	} {
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
