// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CASource returns the CA certificates of the tenant cluster, in PEM.
type CASource func(ctx context.Context) ([]byte, error)

const (
	rootCAConfigMap = "kube-root-ca.crt"
	rootCAKey       = "ca.crt"
)

// ClusterCA finds the CA where a joining server will look for it: in the cluster-info ConfigMap, which kubeadm reads
// and pins. A cluster without one is asked for the CA that it gives its pods, and at last for the one that our own
// connection trusts, which may be that of a proxy in front of it.
func ClusterCA(live client.Reader, config *rest.Config) CASource {
	return func(ctx context.Context) ([]byte, error) {
		for _, source := range []func(context.Context, client.Reader) ([]byte, error){clusterInfoCA, podCA} {
			if ca, err := source(ctx, live); err != nil || len(ca) > 0 {
				return ca, err
			}
		}
		if len(config.CAData) > 0 {
			return config.CAData, nil
		}
		if config.CAFile == "" {
			return nil, errors.New("there is no ConfigMap kube-public/cluster-info, and the kubeconfig has no certificate-authority-data")
		}
		ca, err := os.ReadFile(config.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate authority of the kubeconfig, %w", err)
		}
		return ca, nil
	}
}

func clusterInfoCA(ctx context.Context, live client.Reader) ([]byte, error) {
	configMap, err := publicConfigMap(ctx, live, bootstrapapi.ConfigMapClusterInfo)
	if configMap == nil || err != nil {
		return nil, err
	}
	kubeconfig, err := clientcmd.Load([]byte(configMap.Data[bootstrapapi.KubeConfigKey]))
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig in ConfigMap %s/%s, %w", configMap.Namespace, configMap.Name, err)
	}
	for _, cluster := range kubeconfig.Clusters {
		return cluster.CertificateAuthorityData, nil
	}
	return nil, nil
}

func podCA(ctx context.Context, live client.Reader) ([]byte, error) {
	configMap, err := publicConfigMap(ctx, live, rootCAConfigMap)
	if configMap == nil || err != nil {
		return nil, err
	}
	return []byte(configMap.Data[rootCAKey]), nil
}

func publicConfigMap(ctx context.Context, live client.Reader, name string) (*corev1.ConfigMap, error) {
	configMap := &corev1.ConfigMap{}
	err := live.Get(ctx, client.ObjectKey{Namespace: metav1.NamespacePublic, Name: name}, configMap)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s, %w", metav1.NamespacePublic, name, err)
	}
	return configMap, nil
}
