// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// storageControllers are those of a cluster without nodes: garbage collection, deletion of namespaces, and service
// accounts.
var storageControllers = []string{
	"garbage-collector-controller", "namespace-controller", "serviceaccount-controller",
	"clusterrole-aggregation-controller", "root-ca-certificate-publisher-controller",
}

// nodeControllers are all controllers, including those of bootstrap tokens, which are off by default.
var nodeControllers = []string{"*", "bootstrap-signer-controller", "token-cleaner-controller"}

// StartAPIServer starts the API server and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	etcd := c.config.Etcd
	authorization := "RBAC"
	if c.config.Nodes {
		authorization = "Node,RBAC"
	}
	args := []string{
		"--etcd-servers=" + etcd.URL, "--etcd-prefix=/" + c.config.Name,
		"--etcd-cafile=" + etcd.CAFile, "--etcd-certfile=" + etcd.CertFile, "--etcd-keyfile=" + etcd.CertKey,
		"--bind-address=" + c.config.Address, "--advertise-address=" + c.config.Address, fmt.Sprintf("--secure-port=%d", c.config.Port),
		// The kubernetes service cannot have a loopback endpoint, and no node has a proxy for it.
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + c.files.servingCert, "--tls-private-key-file=" + c.files.servingKey,
		"--client-ca-file=" + c.files.caCert,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.files.tokenPublic, "--service-account-signing-key-file=" + c.files.tokenKey,
		"--service-cluster-ip-range=" + c.config.ServiceCIDR,
		"--authorization-mode=" + authorization,
		"--allow-privileged=true",
		"--profiling=false",
	}
	if c.config.Nodes {
		args = append(args,
			"--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth=true",
			"--kubelet-client-certificate="+c.files.kubeletCert, "--kubelet-client-key="+c.files.kubeletKey,
			"--kubelet-preferred-address-types=InternalIP",
		)
	}
	args = append(args, c.config.APIServerFlags...)
	name, err := c.start(ctx, "kube-apiserver", RankAPIServer, args)
	if err != nil {
		return err
	}
	clientset, err := c.clientset()
	if err != nil {
		return err
	}
	return Await(ctx, name+" to be ready", func(ctx context.Context) error {
		return clientset.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// StartControllers starts the controller-manager, and the scheduler of a cluster with nodes, and returns when
// controllers have begun their work.
func (c *Cluster) StartControllers(ctx context.Context) error {
	controllers := storageControllers
	if c.config.Nodes {
		controllers = nodeControllers
	}
	args := []string{
		"--kubeconfig=" + c.files.controllerManager, "--controllers=" + strings.Join(controllers, ","),
		// There is one replica: no leader election, no metrics.
		"--leader-elect=false", "--secure-port=0", "--profiling=false",
		"--service-account-private-key-file=" + c.files.tokenKey, "--root-ca-file=" + c.files.caCert,
		"--use-service-account-credentials", "--kube-api-qps=100", "--kube-api-burst=200",
	}
	if c.config.Nodes {
		args = append(args,
			"--cluster-signing-cert-file="+c.files.caCert, "--cluster-signing-key-file="+c.files.caKey,
			"--allocate-node-cidrs", "--cluster-cidr="+c.config.PodCIDR, "--service-cluster-ip-range="+c.config.ServiceCIDR,
		)
	}
	name, err := c.start(ctx, "kube-controller-manager", RankControllers, args)
	if err != nil {
		return err
	}
	if c.config.Nodes {
		args, err := c.schedulerArgs()
		if err != nil {
			return err
		}
		if _, err := c.start(ctx, "kube-scheduler", RankControllers, args); err != nil {
			return err
		}
	}
	clientset, err := c.clientset()
	if err != nil {
		return err
	}
	// Pods are rejected before their service account exists.
	return Await(ctx, name+" to make the default service account", func(ctx context.Context) error {
		_, err := clientset.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("it does not exist yet")
		}
		return err
	})
}
