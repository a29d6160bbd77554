// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// kubectlWith runs kubectl with what is given to it as a file, and returns what it prints. That it fails is in its output.
func kubectlWith(t *testing.T, config, document string, arguments ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "document.yaml")
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	arguments = append([]string{"--kubeconfig", config}, append(arguments, "-f", file)...)
	output, _ := exec.CommandContext(t.Context(), kubectl(), arguments...).CombinedOutput()
	return strings.ReplaceAll(string(output), file, "FILE")
}

const otherForms = `
apiVersion: karpenter.metal3.io/v1alpha1
kind: TenantCluster
metadata: {name: forms, namespace: team-b}
spec:
  apiServerEndpoint: t.example.com:6443
  quota: {servers: 1}
  allowedNodeTypes: [{name: metal3-provider.*}, h100, {name: metal3-provider.cpu}]
  privateNodes:
    autoNodes:
      provider: metal3-provider
      properties: {example.com/team: forms}
      static:
      - {name: p, quantity: 1, nodeTypeSelector: [{property: karpenter.metal3.io/node-type, value: cpu}]}
---
apiVersion: karpenter.metal3.io/v1alpha1
kind: NodeType
metadata: {name: forms}
spec:
  providerRef: metal3-provider
  resources: {cpu: 1, memory: 1Gi}
  bareMetalHosts: {selector: {matchLabels: {server-class: cpu}}}
`

// TestOtherForms: what the reference writes in another form is stored in the form of the schema, however it is written, and stays as it is
// when it is written again. Server-side apply compares types first, and without the webhook the schema refuses it.
func TestOtherForms(t *testing.T) {
	fleet(t)
	tenant, nodeType := &v1alpha1.TenantCluster{}, &v1alpha1.NodeType{}
	tenant.Namespace, tenant.Name, nodeType.Name = "team-b", "forms", "forms"
	t.Cleanup(func() { // after the configuration is gone, because the webhook is
		for _, object := range []client.Object{tenant, nodeType} {
			if err := environment.Client.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	})
	webhook := asked(t)
	config := environment.Kubeconfig(t, "")
	expect := func(how, output, says string, generation int64) {
		t.Helper()
		if !strings.Contains(output, says) {
			t.Errorf("%s: it says\n%s\nwant %s", how, output, says)
		}
		for _, object := range []client.Object{tenant, nodeType} {
			if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Fatalf("%s, %v, after\n%s", how, err, output)
			}
		}
		want := parse[v1alpha1.TenantClusterSpec](t, `{apiServerEndpoint: 't.example.com:6443', quota: {servers: 1},
			allowedNodeTypes: [metal3-provider.*, h100, metal3-provider.cpu], privateNodes: {autoNodes: [{provider: metal3-provider,
			properties: {example.com/team: forms}, static: [{name: p, quantity: 1, nodeTypeSelector: [
			{property: karpenter.metal3.io/node-type, value: cpu}]}]}]}}`)
		if diff := cmp.Diff(*want, tenant.Spec); diff != "" || tenant.Generation != generation {
			t.Errorf("%s: generation %d, spec (-want +got):\n%s", how, tenant.Generation, diff)
		}
		if nodeType.Spec.ProviderRef.Name != "metal3-provider" || nodeType.Generation != generation {
			t.Errorf("%s: the NodeType has generation %d and is of %+v", how, nodeType.Generation, nodeType.Spec.ProviderRef)
		}
	}
	const configured = `Warning: spec.privateNodes.autoNodes: is stored as a list: write autoNodes: [{provider: ...}]
Warning: spec.allowedNodeTypes: is stored as a list of names: write allowedNodeTypes: [...]
tenantcluster.karpenter.metal3.io/forms configured
Warning: spec.providerRef: is stored as an object: write providerRef: {name: ...}
nodetype.karpenter.metal3.io/forms configured
`
	expect("kubectl apply", kubectlWith(t, config, otherForms, "apply", "--validate=strict"),
		"tenantcluster.karpenter.metal3.io/forms created", 1)
	expect("kubectl apply, again", kubectlWith(t, config, otherForms, "apply", "--validate=strict"), configured, 1)
	expect("kubectl replace", kubectlWith(t, config, otherForms, "replace", "--validate=strict"),
		strings.ReplaceAll(configured, "configured", "replaced"), 1)
	expect("server-side apply", kubectlWith(t, config, otherForms, "apply", "--server-side", "--force-conflicts"),
		"failed to create typed patch object (team-b/forms; karpenter.metal3.io/v1alpha1, Kind=TenantCluster)", 1)
	for object, text := range map[client.Object]string{
		tenant:   `{"spec":{"privateNodes":{"autoNodes":{"provider":"other"}},"allowedNodeTypes":[{"name":"h100"}]}}`,
		nodeType: `{"spec":{"displayName":"Changed","providerRef":"metal3-provider"}}`,
	} {
		if err := environment.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
			t.Errorf("a merge patch: %v", err)
		}
	}
	if nodes := tenant.Spec.PrivateNodes.AutoNodes; len(nodes) != 1 || nodes[0].Provider != "other" ||
		!slices.Equal(*tenant.Spec.AllowedNodeTypes, []string{"h100"}) {
		t.Errorf("after a merge patch, it has %+v and %v", nodes, *tenant.Spec.AllowedNodeTypes)
	}
	expect("kubectl replace, of others", kubectlWith(t, config, otherForms, "replace"), "tenantcluster.karpenter.metal3.io/forms replaced", 3)

	// Nothing but the other form needs the webhook that changes it. The one that validates has its own way out.
	webhook.kill(t)
	for how, says := range map[string]string{
		"without the webhook, lists":   "spec.privateNodes.autoNodes in body must be of type array",
		"without the webhook, names":   "spec.allowedNodeTypes[0] in body must be of type string",
		"without the webhook, objects": "spec.providerRef in body must be of type object",
	} {
		expect(how, kubectlWith(t, config, otherForms, "replace"), says, 3)
	}
}
