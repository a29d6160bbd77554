// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"fmt"
	"regexp"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// VersionSource returns the minor version of the tenant cluster, such as v1.35. It is what a server installs that has
// no kubelet.
type VersionSource func(ctx context.Context) (string, error)

var leadingDigits = regexp.MustCompile(`^[0-9]+`)

// ServerVersion asks the tenant's API server for its version.
func ServerVersion(config *rest.Config) VersionSource {
	return func(context.Context) (string, error) {
		client, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			return "", fmt.Errorf("making a client of the tenant cluster, %w", err)
		}
		version, err := client.ServerVersion()
		if err != nil {
			return "", fmt.Errorf("asking the tenant cluster for its version, %w", err)
		}
		// Some distributions write "35+".
		return "v" + version.Major + "." + leadingDigits.FindString(version.Minor), nil
	}
}
