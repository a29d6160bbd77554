// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/claimstatus"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/settings"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/vcluster"
)

// finding is what the condition will say.
type finding struct {
	reason, message string
	// canRun tells whether the controllers can run, whatever the settings let them do.
	canRun bool
}

// examine finds out whether the sync can run, and whether it has anything to do.
func (c *Controller) examine(ctx context.Context, cluster *v1alpha1.TenantCluster) (finding, error) {
	if err := vcluster.CheckTenant(cluster.Name); err != nil {
		return finding{reason: v1alpha1.ReasonInvalidName, message: sentence(err.Error())}, nil
	}
	for _, plane := range []struct {
		name   string
		client client.Client
	}{{"management cluster", c.planes.Management.Client}, {"tenant cluster", c.planes.Tenant.Client}} {
		missing, err := notServed(plane.client)
		if err != nil {
			return finding{}, fmt.Errorf("asking the %s for its APIs, %w", plane.name, err)
		}
		if missing != "" {
			return finding{reason: v1alpha1.ReasonAPINotServed, message: fmt.Sprintf(
				"The %s does not serve %s %s: it takes Kubernetes 1.34 or later with that API enabled", plane.name, resourcev1.SchemeGroupVersion, missing)}, nil
		}
	}
	same, err := c.sameCluster(ctx)
	if err != nil {
		return finding{}, err
	}
	if same {
		return finding{reason: v1alpha1.ReasonSameCluster,
			message: "The tenant cluster is the management cluster: there is nothing to sync, disable spec.sync"}, nil
	}
	if !cluster.Spec.Sync.Enabled() {
		return finding{reason: v1alpha1.ReasonSyncDisabled, message: "Nothing is enabled in spec.sync. What has been synced stays", canRun: true}, nil
	}
	if s := settings.Of(cluster); s.Problem != nil {
		return finding{reason: v1alpha1.ReasonInvalidSelector, message: sentence(s.Problem.Error()), canRun: true}, nil
	}
	return finding{reason: v1alpha1.ReasonSynced, message: "In sync: " + strings.Join(enabled(&cluster.Spec.Sync), ", "), canRun: true}, nil
}

// notServed returns the first kind that a cluster does not serve, or nothing. Pods are served; the controllers watch them,
// and must not find the API away when they do.
func notServed(c client.Client) (string, error) {
	for _, kind := range []schema.GroupVersionKind{
		resourcev1.SchemeGroupVersion.WithKind("DeviceClass"), resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"),
		resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate"), claimstatus.PodKind,
	} {
		_, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			return kind.Kind, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

func enabled(sync *v1alpha1.Sync) []string {
	var kinds []string
	if sync.FromHost.DeviceClasses.Enabled {
		kinds = append(kinds, "deviceClasses")
	}
	if sync.ToHost.ResourceClaims.Enabled {
		kinds = append(kinds, "resourceClaims")
	}
	if sync.ToHost.ResourceClaimTemplates.Enabled {
		kinds = append(kinds, "resourceClaimTemplates")
	}
	return kinds
}

// sentence begins with a capital letter, as messages of conditions do.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
