// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"text/template"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
)

// user is the provider's user name in the bindings in config/rbac. On the host it includes the name of the tenant.
const user = "karpenter-metal3-provider"

// StartProvider starts the tenant's provider with only the sync of Dynamic Resource Allocation, and only its rights in
// config/rbac. It returns when the provider is ready.
func (t *Tenant) StartProvider(ctx context.Context) error {
	w := t.environment
	onHost, inTenant := filepath.Join(w.config.Dir, t.Name+"-provider-host.kubeconfig"),
		filepath.Join(w.config.Dir, t.Name+"-provider-tenant.kubeconfig")
	if err := w.grant(ctx, w.Host, "provider-dra-management.yaml", t.Name, user+"-"+t.Name, onHost); err != nil {
		return err
	}
	if err := w.grant(ctx, t.Cluster, "provider-dra-tenant.yaml", t.Name, user+"-"+t.Name, inTenant); err != nil {
		return err
	}
	path, err := w.config.Binaries.Find("provider")
	if err != nil {
		return err
	}
	ports, err := controlplane.FreePorts(1)
	if err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	if err := w.supervisor.Start(process.Spec{
		Name: t.ProviderProcess(), Path: path, Rank: controlplane.RankClients + 1, Restart: true,
		Args: []string{
			"--controllers=dra", "--management-kubeconfig=" + onHost, "--tenant-kubeconfig=" + inTenant,
			"--namespace=" + t.Name, "--tenant-cluster=" + t.Name, "--health-probe-bind-address=" + address,
			"--metrics-bind-address=0",
		},
	}); err != nil {
		return err
	}
	return await(ctx, "the provider of "+t.Name+" to be ready", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("the response is %s", response.Status)
		}
		return nil
	})
}

// ProviderProcess is the name of the process of the tenant's provider, for Environment.Log.
func (t *Tenant) ProviderProcess() string { return t.Name + "-provider" }

// grant gives a user the rights in a file of config/rbac, and writes its kubeconfig file.
func (w *Environment) grant(ctx context.Context, cluster *Cluster, file, namespace, user, kubeconfig string) error {
	content, err := rbac.Files.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading rights, %w", err)
	}
	parsed, err := template.New(file).Option("missingkey=error").Parse(string(content))
	if err != nil {
		return fmt.Errorf("parsing the template of rights, %w", err)
	}
	var filled bytes.Buffer
	if err := parsed.Execute(&filled, map[string]string{"Namespace": namespace}); err != nil {
		return fmt.Errorf("filling in the template of rights, %w", err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(&filled, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return cluster.WriteKubeconfig(kubeconfig, user)
		}
		if err != nil {
			return fmt.Errorf("parsing the rights in %s, %w", file, err)
		}
		if subjects, ok := object.Object["subjects"].([]any); ok {
			for _, subject := range subjects {
				subject.(map[string]any)["name"] = user
			}
		}
		// Roles for all tenants exist already for the second tenant.
		if err := cluster.Client.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("granting the rights in %s, %w", file, err)
		}
	}
}
