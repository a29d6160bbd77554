// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
)

// Users of our own processes in the bindings in config/rbac. None is a member of a group: they have only the rights of
// those files.
const (
	managerUser  = "karpenter-metal3-manager"
	providerUser = "karpenter-metal3-provider"
)

// grant applies a file of config/rbac for a user, and writes the user's kubeconfig file.
func grant(ctx context.Context, cluster *controlplane.Cluster, c client.Client, user, file, tenant, kubeconfig string) error {
	rights, err := Rights(file, tenant)
	if err != nil {
		return err
	}
	for _, object := range rights {
		if err := apply(ctx, c, object); err != nil {
			return fmt.Errorf("granting %s the rights in %s, %w", user, file, err)
		}
	}
	return cluster.WriteKubeconfig(kubeconfig, user)
}

// Rights reads a file of config/rbac, for tests that bind the roles to other users than a sandbox does.
func Rights(file, namespace string) ([]*unstructured.Unstructured, error) {
	return readRights(rbac.Files, file, namespace)
}

// readRights reads a file of roles and their bindings. The file is a template: .Namespace is the tenant's namespace in the
// management cluster.
func readRights(files fs.FS, file, namespace string) ([]*unstructured.Unstructured, error) {
	content, err := fs.ReadFile(files, file)
	if err != nil {
		return nil, fmt.Errorf("reading rights, %w", err)
	}
	parsed, err := template.New(file).Option("missingkey=error").Parse(string(content))
	if err != nil {
		return nil, fmt.Errorf("parsing the template of rights, %w", err)
	}
	var filled bytes.Buffer
	if err := parsed.Execute(&filled, map[string]string{"Namespace": namespace}); err != nil {
		return nil, fmt.Errorf("filling in the template of rights, %w", err)
	}
	var rights []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(&filled, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return rights, nil
		}
		if err != nil {
			return nil, fmt.Errorf("parsing the rights in %s, %w", file, err)
		}
		if len(object.Object) > 0 { // not a document of comments only
			rights = append(rights, object)
		}
	}
}
