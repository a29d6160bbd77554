// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
)

func TestCallers(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "karpenter-metal3", Name: "karpenter-metal3-webhook",
		Labels: map[string]string{"app.kubernetes.io/component": "webhook"}}
	deployment := func(args ...string) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: meta}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Args: append([]string{"--webhook-bind-address=:9443"}, args...)}}
		return d
	}
	allow := func(port string, from ...networkingv1.NetworkPolicyPeer) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: networkingv1.NetworkPolicySpec{
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: from, Ports: []networkingv1.NetworkPolicyPort{
				{Port: ptr.To(intstr.FromString(port))}}}},
		}}
	}
	peer := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.1/32"}}
	elsewhere := deployment("--client-ca-file=/clients/ca.crt")
	elsewhere.Namespace = "another"
	inCluster := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: meta.Namespace}}
	for name, tc := range map[string]struct {
		reason  string
		config  admissionregistrationv1.WebhookClientConfig
		objects []client.Object
		want    Level // empty: nothing is said
		message string
	}{
		"Default": {reason: "as the chart has it", config: inCluster, objects: []client.Object{deployment(), allow("https")}, want: Warn,
			message: "every pod of the cluster can ask the webhook"},
		"Certificate": {reason: "others get 403", config: inCluster, want: OK, message: "client certificate",
			objects: []client.Object{deployment("--client-ca-file=/clients/ca.crt"), allow("https")}},
		"Network": {reason: "others get no connection", config: inCluster, objects: []client.Object{deployment(), allow("https", peer)},
			want: OK, message: "NetworkPolicy"},
		"OtherPort": {reason: "the metrics are limited, and not the webhook", config: inCluster,
			objects: []client.Object{deployment(), allow("metrics", peer)}, want: Warn, message: "every pod"},
		"Elsewhere": {reason: "another release", config: inCluster, objects: []client.Object{deployment(), elsewhere}, want: Warn,
			message: "every pod"},
		"URL": {reason: "nothing is known of where it runs", config: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://x")}},
	} {
		t.Run(name, func(t *testing.T) {
			configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: webhook.ConfigurationName},
				Webhooks:   []admissionregistrationv1.ValidatingWebhook{{ClientConfig: tc.config}}}
			cluster := &Cluster{Reader: fake.NewClientBuilder().WithObjects(append(tc.objects, configuration)...).Build()}
			got := cluster.Callers(t.Context())
			if tc.want == "" && len(got) == 0 {
				return
			}
			if len(got) != 1 || got[0].Level != tc.want || !strings.Contains(got[0].Message, tc.message) {
				t.Errorf("%s: got %+v, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
