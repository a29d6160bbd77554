// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// join returns the data that the server of a Machine joins with.
func (c *Controller) join(ctx context.Context, machine *v1alpha1.Machine, cluster *v1alpha1.TenantCluster,
	token bootstrap.Token, version string) (bootstrap.Join, error) {
	ca, err := c.ca(ctx)
	if err != nil {
		return bootstrap.Join{}, fmt.Errorf("finding the CA of the tenant cluster, %w", err)
	}
	hashes, err := bootstrap.CACertHashes(ca)
	if err != nil {
		return bootstrap.Join{}, err
	}
	args, err := c.kubeletArgs(ctx, machine)
	if err != nil {
		return bootstrap.Join{}, err
	}
	labels := lo.Assign(machine.Status.NodeLabels, machine.Spec.Labels)
	join := bootstrap.Join{
		NodeName:          machine.Name,
		ProviderID:        machine.Status.ProviderID,
		APIServerEndpoint: cluster.Spec.APIServerEndpoint,
		CACertHashes:      hashes,
		Token:             token,
		Labels:            labels,
		Taints:            taintsOf(machine),
		KubeletArgs:       args,
		Mode:              cluster.Spec.JoinMode,
	}
	if join.Mode == v1alpha1.JoinVCluster {
		join.CACertificates = ca
		return join, nil
	}
	join.KubernetesVersion = version
	return join, nil
}

// taintsOf returns the taints that the Node registers with, each once.
func taintsOf(machine *v1alpha1.Machine) []corev1.Taint {
	taints := slices.Concat(machine.Spec.Taints, machine.Spec.StartupTaints)
	if machine.Labels[v1alpha1.NodeClaimLabelKey] != "" {
		// Karpenter removes the taint once it has matched Node and NodeClaim. Until then, no pod may land there.
		taints = append(taints, karpv1.UnregisteredNoExecuteTaint)
	}
	return lo.UniqBy(taints, func(taint corev1.Taint) string { return taint.Key + ":" + string(taint.Effect) })
}

// VersionSource returns the minor version of the tenant cluster, for example v1.35. A server without a kubelet installs
// that version.
type VersionSource func(ctx context.Context) (string, error)

// CASource returns the CA certificates of the tenant cluster, in PEM.
type CASource func(ctx context.Context) ([]byte, error)

const (
	rootCAConfigMap = "kube-root-ca.crt"
	rootCAKey       = "ca.crt"
)

// ClusterCA finds the CA where a joining server will look for it: in the cluster-info ConfigMap, which kubeadm reads
// and pins. Without that ConfigMap it uses the CA of the cluster's pods, and finally the CA of the provider's own
// connection, which may be a proxy's.
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
	found, err := kube.Find(ctx, live, client.ObjectKey{Namespace: metav1.NamespacePublic, Name: name}, configMap)
	if err != nil || !found {
		return nil, err
	}
	return configMap, nil
}

// kubeletArgs returns the extra arguments of the kubelet of a Machine: the Machine's own, and the reservation and the
// number of pods of its NodeType. So pods get the room on the Node that Karpenter planned with.
func (c *Controller) kubeletArgs(ctx context.Context, machine *v1alpha1.Machine) (map[string]string, error) {
	args := machine.Spec.KubeletArgs.Strings()
	if err := bootstrap.CheckKubeletArgs(args); err != nil {
		return nil, fmt.Errorf("spec.kubeletArgs of machine %s, %w", client.ObjectKeyFromObject(machine), err)
	}
	if machine.Status.NodeTypeRef == nil {
		return args, nil
	}
	nodeType := &v1alpha1.NodeType{}
	key := client.ObjectKey{Name: machine.Status.NodeTypeRef.Name}
	if found, err := kube.Find(ctx, c.clusters.Management.Client, key, nodeType); err != nil || !found {
		return args, err // The overhead of a deleted type is not known any more; the server joins without it.
	}
	if reserved := nodeType.KubeReserved(); reserved != "" {
		args[bootstrap.ArgKubeReserved] = reserved
	}
	if pods, named := nodeType.Spec.Resources[corev1.ResourcePods]; named && args[capacity.ArgMaxPods] == "" {
		args[capacity.ArgMaxPods] = strconv.FormatInt(pods.Value(), 10)
	}
	return args, nil
}
