// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// StartProvider starts the tenant's provider with only the sync of Dynamic Resource Allocation, and only its rights in
// config/rbac, as a user of its own. It returns when the provider is ready.
func (t *Tenant) StartProvider(ctx context.Context) error {
	w, user := t.environment, cluster.ProviderUser+"-"+t.Name
	onHost, inTenant := filepath.Join(w.config.Dir, t.Name+"-provider-host.kubeconfig"),
		filepath.Join(w.config.Dir, t.Name+"-provider-tenant.kubeconfig")
	if err := w.Host.Grant(ctx, user, t.Name, onHost, "provider-dra-management.yaml"); err != nil {
		return err
	}
	if err := t.Grant(ctx, user, t.Name, inTenant, "provider-dra-tenant.yaml"); err != nil {
		return err
	}
	ctx, cancel := poll.WithPatience(ctx)
	defer cancel()
	return t.StartProgram(ctx, "provider", process.Spec{
		Name: t.ProviderProcess(), Restart: true,
		Args: []string{
			"--controllers=dra", "--management-kubeconfig=" + onHost, "--tenant-kubeconfig=" + inTenant,
			"--namespace=" + t.Name, "--tenant-cluster=" + t.Name, "--metrics-bind-address=0",
		},
	})
}

// ProviderProcess is the name of the process of the tenant's provider, for Environment.Log.
func (t *Tenant) ProviderProcess() string { return t.Name + "-provider" }

// WebhookProcess is the name of the webhook's process, for Environment.Log and Environment.Processes.
const WebhookProcess = "webhook"

// StartWebhook starts the webhook with only its rights in config/rbac, and has the host ask it. It returns when the webhook
// is ready.
func (w *Environment) StartWebhook(ctx context.Context) error {
	ctx, cancel := poll.WithPatience(ctx)
	defer cancel()
	kubeconfig := filepath.Join(w.config.Dir, "webhook.kubeconfig")
	if err := w.Host.Grant(ctx, cluster.WebhookUser, metav1.NamespaceDefault, kubeconfig, "webhook.yaml"); err != nil {
		return err
	}
	return w.Host.StartWebhook(ctx, kubeconfig,
		process.Spec{Restart: true, Args: []string{"--metrics-bind-address=0"}})
}

func (t *Tenant) claimController() string { return t.Name + "-resourceclaim-controller" }

// StartClaimController starts Kubernetes' resourceclaim controller in the tenant, as vCluster up to v0.31 does, and later ones
// without the sync of templates. What it returns stops it.
func (t *Tenant) StartClaimController() (stop func() error, err error) {
	w, name := t.environment, t.claimController()
	stop = func() error { return w.supervisor.Stop(name) }
	return stop, w.config.Binaries.Start(w.supervisor, "kube-controller-manager", process.Spec{Name: name, Args: []string{
		"--kubeconfig=" + t.Kubeconfig, "--controllers=resourceclaim-controller",
		"--leader-elect=false", "--secure-port=0", "--profiling=false",
	}})
}
