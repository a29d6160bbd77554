// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
)

const (
	// WebhookProcess is the name of the webhook's process, for Environment.Log and Environment.Processes.
	WebhookProcess = "webhook"
	// webhookUser is the webhook's user name in the bindings in config/rbac.
	webhookUser = "karpenter-metal3-webhook"
)

// StartWebhook starts the webhook with only its rights in config/rbac, and has the host ask it. It returns when the webhook
// is ready.
func (w *Environment) StartWebhook(ctx context.Context) error {
	kubeconfig := w.config.Dir + "/webhook.kubeconfig"
	if err := w.grant(ctx, w.Host, "webhook.yaml", metav1.NamespaceDefault, webhookUser, kubeconfig); err != nil {
		return err
	}
	path, err := w.config.Binaries.Find("webhook")
	if err != nil {
		return err
	}
	ports, err := controlplane.FreePorts(2)
	if err != nil {
		return err
	}
	address, health := fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	configurations, err := webhook.Both(webhook.Options{URL: "https://" + address})
	if err != nil {
		return err
	}
	for _, configuration := range configurations {
		if err := w.Host.Client.Create(ctx, configuration); err != nil {
			return fmt.Errorf("configuring the webhook, %w", err)
		}
	}
	if err := w.supervisor.Start(process.Spec{
		Name: WebhookProcess, Path: path, Rank: controlplane.RankClients + 1, Restart: true,
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--webhook-bind-address=" + address, "--cert-names=127.0.0.1",
			"--namespace=" + metav1.NamespaceDefault, "--shutdown-delay=0",
			"--health-probe-bind-address=" + health, "--metrics-bind-address=0",
		},
	}); err != nil {
		return err
	}
	w.webhookReady = "http://" + health + "/readyz"
	return w.WebhookReady(ctx)
}

// WebhookReady waits until the webhook is ready.
func (w *Environment) WebhookReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	return controlplane.AwaitURL(ctx, "the webhook to be ready", http.DefaultClient, w.webhookReady)
}
