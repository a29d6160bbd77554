// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

// TokenAccess is an Access that reads the management cluster with the reader's token and no other credentials.
type TokenAccess struct {
	// Config says where the API server is. Its credentials are not used.
	Config   *rest.Config
	Topology topology.Mapping
	// Links lead out of the page.
	Links []Link
}

func (a TokenAccess) configFor(token string) *rest.Config {
	config := rest.AnonymousClientConfig(a.Config)
	config.BearerToken = token
	return config
}

// Check implements Access.
func (a TokenAccess) Check(ctx context.Context, token string) (string, error) {
	authentication, err := authenticationclient.NewForConfig(a.configFor(token))
	if err != nil {
		return "", fmt.Errorf("making a client, %w", err)
	}
	review, err := authentication.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err): // the API server knows the user, who may not ask
		return "", nil
	case err != nil:
		return "", fmt.Errorf("asking the API server whose token it is, %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// Follow implements Access.
func (a TokenAccess) Follow(ctx context.Context, token, namespace string) (Source, Options, error) {
	management, err := client.NewWithWatch(a.configFor(token), client.Options{Scheme: view.Scheme()})
	if err != nil {
		return nil, Options{}, fmt.Errorf("making a client, %w", err)
	}
	source, options, err := Follow(ctx, management, nil, view.Scope{Machines: namespace}, a.Topology)
	options.Links = a.Links
	return source, options, err
}
