// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// How often an API server that does not answer is tried at start, and how long one try may take.
const (
	startupPollInterval   = time.Second
	startupRequestTimeout = 5 * time.Second
)

// Kind is something that the API of a cluster must have.
type Kind struct {
	schema.GroupVersionKind
	// Remedy says how to install it, for example "install baremetal-operator's CRDs".
	Remedy string
}

// Preflight returns once the API server of a cluster answers and has the kinds. See WaitForAPI and RequireKinds.
func (o *Options) Preflight(ctx context.Context, config *rest.Config, cluster string, kinds ...Kind) error {
	if err := WaitForAPI(ctx, config, cluster, o.StartupTimeout); err != nil {
		return err
	}
	return RequireKinds(config, cluster, kinds...)
}

// WaitForAPI returns once the API server answers. It gives up after timeout, and at once if the credentials are
// refused: waiting does not mend those. The error is one sentence with the server and the reason.
func WaitForAPI(ctx context.Context, config *rest.Config, cluster string, timeout time.Duration) error {
	client, err := discoveryClient(config)
	if err != nil {
		return fmt.Errorf("making a client for the %s at %s, %w", cluster, config.Host, err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, startupPollInterval, timeout, true, func(context.Context) (bool, error) {
		_, last = client.ServerVersion()
		switch {
		case last == nil:
			return true, nil
		case apierrors.IsUnauthorized(last), apierrors.IsForbidden(last):
			return false, last
		}
		klog.FromContext(ctx).Info("Waiting for the API server", "cluster", cluster, "server", config.Host, "err", last.Error())
		return false, nil
	})
	switch {
	case err == nil:
		return nil
	case apierrors.IsUnauthorized(last), apierrors.IsForbidden(last):
		return fmt.Errorf("the %s at %s refuses the credentials of its kubeconfig, %w: renew them", cluster, config.Host, last)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("the API server of the %s at %s did not answer within %v, %w: check that it runs and that the kubeconfig names the "+
		"right server",
		cluster, config.Host, timeout, last)
}

// RequireKinds returns a *MissingKindsError that names each kind that the cluster does not have, and how to install it, or
// another error if the cluster did not answer.
func RequireKinds(config *rest.Config, cluster string, kinds ...Kind) error {
	client, err := discoveryClient(config)
	if err != nil {
		return fmt.Errorf("making a client for the %s at %s, %w", cluster, config.Host, err)
	}
	served := map[schema.GroupVersion][]string{}
	var missing []string
	for _, kind := range kinds {
		version := kind.GroupVersion()
		if _, asked := served[version]; !asked {
			served[version] = []string{}
			resources, err := client.ServerResourcesForGroupVersion(version.String())
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("asking the %s at %s what it knows of %s, %w", cluster, config.Host, version, err)
			}
			if err == nil {
				for _, resource := range resources.APIResources {
					served[version] = append(served[version], resource.Kind)
				}
			}
		}
		if !slices.Contains(served[version], kind.Kind) {
			missing = append(missing,
				fmt.Sprintf("%s (%s) is not installed in the %s at %s: %s", kind.Kind, version, cluster, config.Host, kind.Remedy))
		}
	}
	if len(missing) > 0 {
		return &MissingKindsError{missing}
	}
	return nil
}

// MissingKindsError says that a cluster answers and lacks kinds.
type MissingKindsError struct{ missing []string }

// Error names each kind and how to install it.
func (e *MissingKindsError) Error() string { return strings.Join(e.missing, "; ") }

func discoveryClient(config *rest.Config) (*discovery.DiscoveryClient, error) {
	quick := rest.CopyConfig(config)
	quick.Timeout = startupRequestTimeout
	return discovery.NewDiscoveryClientForConfig(quick)
}
