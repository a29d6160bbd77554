// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// attempt is a request of an account.
type attempt struct {
	verb      string
	kind      kind
	namespace string
	name      string
}

// attempts returns the requests of a line of a table.
func (c *cluster) attempts(t *testing.T, own string, line forbidden) []attempt {
	t.Helper()
	called, known := c.kinds[line.resource]
	if !known {
		t.Fatalf("the API server has no %s, so the line tests nothing", line.resource)
	}
	namespaces := strings.FieldsFunc(strings.ReplaceAll(line.namespaces, ownNamespace, own), func(r rune) bool { return r == ',' })
	if len(namespaces) > 0 && !called.namespaced {
		t.Fatalf("%s are in no namespace", line.resource)
	}
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var all []attempt
	for _, verb := range strings.Fields(line.verbs) {
		// A table may have every verb for a kind that has only some, and RBAC has verbs of its own.
		if !slices.Contains(append(called.verbs, "bind", "escalate", "impersonate"), verb) {
			continue
		}
		for _, namespace := range namespaces {
			all = append(all, attempt{verb, called, namespace, line.name})
		}
	}
	if len(all) == 0 {
		t.Fatalf("no verb of %q exists for %s", line.verbs, line.resource)
	}
	return all
}

// account is a user of an API server.
type account struct {
	config *rest.Config
	client client.Client
}

// token of a service account.
func (c *cluster) token(t *testing.T, namespace, name string) string {
	t.Helper()
	serviceAccount := &corev1.ServiceAccount{}
	if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, serviceAccount); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := c.Client.SubResource("token").Create(t.Context(), serviceAccount, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// login returns an account that has only a token.
func (c *cluster) login(t *testing.T, token string) *account {
	t.Helper()
	config := &rest.Config{Host: c.Config.Host, BearerToken: token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: c.Config.CAData}}
	limited, err := client.New(config, client.Options{Scheme: c.Scheme, Mapper: c.Client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return &account{config, limited}
}

// reviewed returns the answer of a SubjectAccessReview to an attempt.
func (a *account) reviewed(ctx context.Context, what attempt) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{}
	review.Spec = authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: what.verb, Group: what.kind.Group, Version: what.kind.Version, Resource: what.kind.Resource, Subresource: what.kind.subresource,
		Namespace: what.namespace, Name: what.name,
	}}
	err := a.client.Create(ctx, review)
	return review.Status.Allowed, err
}

// try makes the request, as a dry run, so that it has no lasting effect. Errors other than Forbidden mean that the
// account may do it: the object is missing or invalid.
func (a *account) try(ctx context.Context, what attempt) error {
	config := rest.CopyConfig(a.config)
	path := []string{"/apis", what.kind.Group, what.kind.Version}
	if what.kind.Group == "" {
		path = []string{"/api", what.kind.Version}
	}
	if what.namespace != "" {
		path = append(path, "namespaces", what.namespace)
	}
	path = append(path, what.kind.Resource)
	query := "dryRun=All"
	method, body, onCollection := "", "{}", false
	switch what.verb {
	case "get":
		method, body = http.MethodGet, ""
	case "list", "watch":
		method, body, onCollection, query = http.MethodGet, "", true, "timeoutSeconds=1"
		if what.verb == "watch" {
			query += "&watch=true"
		}
	case "create":
		method, onCollection = http.MethodPost, what.kind.subresource == ""
	case "update":
		method = http.MethodPut
	case "patch":
		method = http.MethodPatch
	case "delete":
		method = http.MethodDelete
	case "deletecollection":
		method, onCollection = http.MethodDelete, true
	case "impersonate":
		path, query, method, body, onCollection = []string{"/api", "v1", "namespaces"}, "", http.MethodGet, "", true
		switch what.kind.Resource {
		case "users":
			config.Impersonate.UserName = what.name
		case "groups":
			config.Impersonate.UserName, config.Impersonate.Groups = "user", []string{what.name}
		case "serviceaccounts":
			config.Impersonate.UserName = "system:serviceaccount:" + what.namespace + ":" + what.name
		}
	default:
		return apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("%s is no request: what it is for is tried in its place", what.verb))
	}
	switch {
	case onCollection && what.name != "" && what.verb != "create" && what.verb != "impersonate":
		query += "&fieldSelector=metadata.name=" + what.name
	case !onCollection:
		path = append(path, cmp.Or(what.name, "any"))
		if what.kind.subresource != "" {
			path = append(path, what.kind.subresource)
		}
	}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, config.Host+strings.Join(path, "/")+"?"+query, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if what.verb == "patch" {
		request.Header.Set("Content-Type", string(types.MergePatchType))
	}
	response, err := transport.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode < http.StatusBadRequest {
		return nil
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		return err
	}
	return apierrors.NewGenericServerResponse(response.StatusCode, what.verb,
		schema.GroupResource{Group: what.kind.Group, Resource: what.kind.Resource}, what.name, text.String(), 0, false)
}
