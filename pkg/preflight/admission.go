// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

const (
	policiesCheck = "admission policies"
	// metal3Webhook is the name of baremetal-operator's webhook configuration in its own manifests.
	metal3Webhook = "baremetal-operator-validating-webhook-configuration"
	// injectCA is the annotation of a configuration that gets its authority from cert-manager.
	injectCA = "cert-manager.io/inject-ca-from"

	certManagerGroup  = "cert-manager.io"
	certManagerRemedy = "kubectl apply -f https://github.com/cert-manager/cert-manager/releases/download/v1.20.2/cert-manager.yaml"
)

// admission checks what the API server asks before it writes: the policies, our webhook and Metal3's.
func (c *Cluster) admission(ctx context.Context) []Result {
	results := c.policies(ctx)
	for _, required := range []struct {
		check, name string
		level       Level // if it does not exist
		missing     string
		remedy      string
	}{
		{"webhook", webhook.ConfigurationName, Warn, "wrong selectors, pins and properties are found out late and not when they are written",
			chartRemedy + " --set webhook.enabled=true"},
		{"webhook of Metal3", metal3Webhook, Skip, "baremetal-operator runs without it, or it has another name", ""},
	} {
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		err := c.Reader.Get(ctx, client.ObjectKey{Name: required.name}, configuration)
		switch {
		case apierrors.IsNotFound(err):
			results = append(results, Result{Check: required.check, Level: required.level, Remedy: required.remedy,
				Message: fmt.Sprintf("there is no ValidatingWebhookConfiguration %s: %s", required.name, required.missing)})
		case err != nil:
			results = append(results, unreadable(required.check, err))
		default:
			results = append(results, webhookTrust(required.check, configuration, c.hasCertManager()))
			if required.name == webhook.ConfigurationName {
				results = append(results, c.Callers(ctx)...)
			}
		}
	}
	return results
}

// hasCertManager reports whether the cluster has the kinds of cert-manager. It assumes so if it cannot find out.
func (c *Cluster) hasCertManager() bool {
	groups, err := c.Discovery.ServerGroups()
	if err != nil {
		return true
	}
	for i := range groups.Groups {
		if groups.Groups[i].Name == certManagerGroup {
			return true
		}
	}
	return false
}

func webhookTrust(check string, configuration *admissionregistrationv1.ValidatingWebhookConfiguration, certManager bool) Result {
	result := Result{Check: check, Level: OK, Message: fmt.Sprintf("%d webhooks, with an authority to trust", len(configuration.Webhooks))}
	source, injected := configuration.Annotations[injectCA]
	for i := range configuration.Webhooks {
		webhook := &configuration.Webhooks[i]
		if len(webhook.ClientConfig.CABundle) > 0 {
			continue
		}
		result.Level = Fail
		result.Message = fmt.Sprintf("webhook %s has no caBundle: the API server cannot call it, and refuses what it would be asked about",
			webhook.Name)
		switch {
		case injected && !certManager:
			result.Message += "; cert-manager is to write it from Certificate " + source + ", and is not installed"
			result.Remedy = certManagerRemedy
		case injected:
			result.Message += "; cert-manager is to write it from Certificate " + source
			result.Remedy = "kubectl describe certificates -A"
		case configuration.Name == metal3Webhook:
			result.Remedy = operatorRemedy
		default:
			result.Remedy = "kubectl -n karpenter-metal3 logs -l app.kubernetes.io/component=manager" // which writes it
		}
		return result
	}
	return result
}

// Callers judges whether clients other than the API server can ask our webhook. By default they can: the chart cannot
// know the certificates and addresses of its API server. It skips a missing webhook, and one outside of the cluster.
func (c *Cluster) Callers(ctx context.Context) []Result {
	const check = "callers of the webhook"
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := c.Reader.Get(ctx, client.ObjectKey{Name: webhook.ConfigurationName}, configuration)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return []Result{unreadable(check, err)}
	case len(configuration.Webhooks) == 0 || configuration.Webhooks[0].ClientConfig.Service == nil:
		return nil
	}
	namespace := client.InNamespace(configuration.Webhooks[0].ClientConfig.Service.Namespace)
	labels := map[string]string{"app.kubernetes.io/component": "webhook"}
	deployments, policies := &appsv1.DeploymentList{}, &networkingv1.NetworkPolicyList{}
	if err := c.Reader.List(ctx, deployments, namespace, client.MatchingLabels(labels)); err != nil {
		return []Result{unreadable(check, err)}
	}
	if err := c.Reader.List(ctx, policies, namespace, client.MatchingLabels(labels)); err != nil {
		return []Result{unreadable(check, err)}
	}
	for i := range deployments.Items {
		for _, container := range deployments.Items[i].Spec.Template.Spec.Containers {
			if slices.ContainsFunc(container.Args, func(arg string) bool { return strings.HasPrefix(arg, "--client-ca-file=") }) {
				return []Result{{Check: check, Level: OK, Message: "they need a client certificate"}}
			}
		}
	}
	for i := range policies.Items {
		for _, rule := range policies.Items[i].Spec.Ingress {
			webhooks := func(port networkingv1.NetworkPolicyPort) bool { return port.Port != nil && port.Port.StrVal == "https" }
			if len(rule.From) > 0 && slices.ContainsFunc(rule.Ports, webhooks) {
				return []Result{{Check: check, Level: OK, Message: "a NetworkPolicy says where they are"}}
			}
		}
	}
	return []Result{{Check: check, Level: Warn,
		Remedy: chartRemedy + ` --set-json='networkPolicy.webhookFrom=[{"ipBlock": {"cidr": "ADDRESS/32"}}]'`,
		Message: "every pod of the cluster can ask the webhook, and keep it busy: let it ask for a client certificate (webhook.clients), or " +
			"limit the network to the addresses that the API server calls from (docs/webhooks.md#callers)"}}
}

func (c *Cluster) policies(ctx context.Context) []Result {
	names, err := policy.Names()
	if err != nil {
		return []Result{unreadable(policiesCheck, err)}
	}
	var missing []string
	for _, gap := range policy.Gaps(ctx, c.Reader, names) {
		if gap.Err != nil {
			return []Result{unreadable(policiesCheck, gap.Err)}
		}
		missing = append(missing, gap.Kind+" "+gap.Name)
	}
	if len(missing) > 0 {
		return []Result{{Check: policiesCheck, Level: Warn, Remedy: chartRemedy + " --set policies.enabled=true", Message: fmt.Sprintf(
			"%d are missing: %s: the token of a tenant's provider can write what only the manager may", len(missing),
			conditions.List(missing, maxNamed))}}
	}
	return []Result{{Check: policiesCheck, Level: OK, Message: fmt.Sprintf("%d, each with its binding", len(names))}}
}
