// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"strings"
	"testing"
	"text/template"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
)

// user is the user of our roles.
const user = "karpenter-metal3-provider"

// asUser has the controllers of all tests work with the rights of our roles, and no others.
func asUser(config *rest.Config) *rest.Config {
	limited := rest.CopyConfig(config)
	limited.Impersonate = rest.ImpersonationConfig{UserName: user}
	return limited
}

// grant applies the roles of a file, for one tenant.
func grant(t *testing.T, c client.Client, file, namespace string) {
	t.Helper()
	content, err := rbac.Files.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := template.New(file).Parse(string(content))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := parsed.Execute(&text, struct{ Namespace string }{namespace}); err != nil {
		t.Fatal(err)
	}
	granted := 0
	for document := range strings.SplitSeq(text.String(), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		granted++
		if err := c.Create(context.Background(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	if granted == 0 {
		t.Fatalf("%s has no roles", file)
	}
}
