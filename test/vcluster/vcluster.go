// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vcluster has what the tests need that run a real vCluster as a process, in the place of the pod of its chart.
package vcluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/chart"
)

// workloadKinds are those of the chart that would run vCluster in pods, or bound what pods get.
var workloadKinds = []string{"StatefulSet", "Deployment", "ResourceQuota", "LimitRange"}

// Install creates on the host what vCluster's chart has, of the version that bin/vcluster is built of, but for the workload: its
// rights, its Service and its configuration file, which it returns. Name is that of the vCluster and of its namespace. The
// repository's root, the program helm and the files are paths; the values of files go before the others. vCluster's own
// components that need pods, and telemetry, are off.
func Install(ctx context.Context, root, helm string, c client.Client, name string, values map[string]any, files ...string) ([]byte, error) {
	objects, err := render(ctx, root, helm, name, values, files...)
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return slices.Contains(workloadKinds, object.GetKind())
	})
	for _, object := range objects {
		// As helm install does. vCluster writes to the annotations of its Service, and panics if it has none.
		object.SetAnnotations(map[string]string{"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": name})
	}
	if err := chart.Create(ctx, c, name, objects); err != nil {
		return nil, err
	}
	return configIn(objects, name)
}

// Upgrade gives an installed vCluster the rights that it has with other values, and returns its configuration file with these.
func Upgrade(ctx context.Context, root, helm string, c client.Client, name string, values map[string]any) ([]byte, error) {
	objects, err := render(ctx, root, helm, name, values)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if object.GetKind() != "Role" && object.GetKind() != "ClusterRole" {
			continue
		}
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("helm"), client.ForceOwnership); err != nil {
			return nil, fmt.Errorf("changing %s %s, %w", object.GetKind(), object.GetName(), err)
		}
	}
	return configIn(objects, name)
}

func render(ctx context.Context, root, helm, name string, values map[string]any, files ...string) ([]*unstructured.Unstructured, error) {
	values = maps.Clone(values)
	values["telemetry"] = Off
	ours := chart.Chart{Tool: "vcluster", Module: "github.com/loft-sh/vcluster", Path: "chart"}
	return ours.Render(ctx, root, helm, name, name, values, files...)
}

func configIn(objects []*unstructured.Unstructured, name string) ([]byte, error) {
	for _, object := range objects {
		if object.GetKind() != "Secret" || object.GetName() != "vc-config-"+name {
			continue
		}
		secret := &corev1.Secret{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, secret); err != nil {
			return nil, fmt.Errorf("reading the configuration of vCluster %s, %w", name, err)
		}
		return secret.Data["config.yaml"], nil
	}
	return nil, fmt.Errorf("the chart of vCluster %s has no Secret with a configuration", name)
}

// TokenKubeconfig returns a kubeconfig file with a token of a service account, which is valid for an hour. The client is of the
// cluster that has the account, at that server and with that CA.
func TokenKubeconfig(ctx context.Context, c client.Client, server string, authority []byte, namespace, account string) ([]byte, error) {
	token := &authenticationv1.TokenRequest{}
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := c.SubResource("token").Create(ctx, object, token); err != nil {
		return nil, fmt.Errorf("making a token of service account %s/%s, %w", namespace, account, err)
	}
	config := clientcmdapi.NewConfig()
	config.CurrentContext = "cluster"
	config.Contexts["cluster"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: account}
	config.Clusters["cluster"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	config.AuthInfos[account] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	return clientcmd.Write(*config)
}

// Off is the value of what is not enabled.
var Off = map[string]any{"enabled": false}

// ExternalEtcd is the value of controlPlane.backingStore for an etcd at that URL, and paths of files.
func ExternalEtcd(url, ca, certificate, key string) map[string]any {
	return map[string]any{"etcd": map[string]any{"external": map[string]any{
		"enabled": true, "endpoint": url, "tls": map[string]any{"caFile": ca, "certFile": certificate, "keyFile": key},
	}}}
}

// CreateDNS creates the Service of the tenant's DNS. Before it exists, vCluster syncs no pod.
func CreateDNS(ctx context.Context, tenant client.Client) error {
	dns := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-dns"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}}}}
	if err := tenant.Create(ctx, dns); err != nil {
		return fmt.Errorf("creating the Service of the tenant's DNS, %w", err)
	}
	return nil
}

// Environment is that of the process "vcluster start", with the kubeconfig file of its account on the host, a home directory
// that it can write, and its address. Without a pod's name, it would not look for a host.
func Environment(name, kubeconfig, home, address string) []string {
	return []string{
		"HOME=" + home, "KUBECONFIG=" + kubeconfig, "VCLUSTER_NAME=" + name, "POD_NAME=" + name + "-0", "POD_NAMESPACE=" + name,
		"NAMESPACE=" + name, "POD_IP=" + address,
	}
}
