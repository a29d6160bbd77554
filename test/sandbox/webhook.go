// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
)

// webhookUser is the webhook's user in the binding in config/rbac.
const webhookUser = "karpenter-metal3-webhook"

// startWebhook configures our webhook in the management cluster, starts it, and returns when it is ready. If it is left
// out, there is no webhook.
func (s *Sandbox) startWebhook(ctx context.Context) error {
	if err := grant(ctx, s.management, s.managementClient, webhookUser, "webhook.yaml", metav1.NamespaceDefault,
		s.kubeconfigs.Webhook); err != nil {
		return err
	}
	if slices.Contains(s.config.Without, WebhookName) {
		s.progress.say("%s is left to you", WebhookName)
		return nil
	}
	ports, err := controlplane.FreePorts(1)
	if err != nil {
		return err
	}
	// The API server is not in the cluster's network here, so it uses the address and not a Service.
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	configurations, err := webhook.Both(webhook.Options{URL: "https://" + address})
	if err != nil {
		return err
	}
	for _, configuration := range configurations {
		if err := apply(ctx, s.managementClient, configuration); err != nil {
			return err
		}
	}
	err = s.runReady(ctx, process.Spec{
		Name: WebhookName, Rank: controlplane.RankClients + 1, Restart: true,
		Args: []string{
			"--kubeconfig=" + s.kubeconfigs.Webhook, "--webhook-bind-address=" + address,
			"--cert-names=127.0.0.1", "--namespace=" + metav1.NamespaceDefault, "--shutdown-delay=0",
		},
	})
	if err != nil {
		return err
	}
	s.progress.say("%s is ready", WebhookName)
	return nil
}
