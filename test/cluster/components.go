// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/scheduler"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// storageControllers are those of a cluster without nodes: garbage collection, deletion of namespaces, and service
// accounts.
var storageControllers = []string{
	"garbage-collector-controller", "namespace-controller", "serviceaccount-controller",
	"clusterrole-aggregation-controller", "root-ca-certificate-publisher-controller",
}

// nodeControllers are all controllers, including those of bootstrap tokens, which are off by default.
var nodeControllers = []string{"*", "bootstrap-signer-controller", "token-cleaner-controller"}

// startAPIServer starts the API server and returns when it is ready.
func (c *Cluster) startAPIServer(ctx context.Context) error {
	etcd := c.Etcd
	authorization := "RBAC"
	if c.options.Nodes {
		authorization = "Node,RBAC"
	}
	args := []string{
		"--etcd-servers=" + etcd.URL, "--etcd-prefix=/" + c.options.Name,
		"--etcd-cafile=" + etcd.CAFile, "--etcd-certfile=" + etcd.CertFile, "--etcd-keyfile=" + etcd.CertKey,
		"--bind-address=" + c.options.Address, "--advertise-address=" + c.options.Address, fmt.Sprintf("--secure-port=%d", c.port),
		// The kubernetes service cannot have a loopback endpoint, and no node has a proxy for it.
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + c.pki("apiserver.crt"), "--tls-private-key-file=" + c.pki("apiserver.key"),
		"--client-ca-file=" + c.pki("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.pki("sa.pub"), "--service-account-signing-key-file=" + c.pki("sa.key"),
		"--service-cluster-ip-range=" + c.options.ServiceCIDR,
		"--authorization-mode=" + authorization,
		"--allow-privileged=true",
		"--profiling=false",
	}
	if c.options.Nodes {
		args = append(args,
			"--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth=true",
			"--kubelet-client-certificate="+c.pki("apiserver-kubelet-client.crt"), "--kubelet-client-key="+c.pki("apiserver-kubelet-client.key"),
			"--kubelet-preferred-address-types=InternalIP",
		)
	}
	args = append(c.gated(args), c.options.APIServerFlags...)
	name, err := c.start(ctx, "kube-apiserver", RankAPIServer, args)
	if err != nil {
		return err
	}
	clientset, err := c.clientset()
	if err != nil {
		return err
	}
	if err := Await(ctx, name+" to be ready", func(ctx context.Context) error {
		return clientset.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return err
	}
	// It asks the API server for its kinds.
	plain, err := client.NewWithWatch(c.REST, client.Options{Scheme: env.Scheme()})
	if err != nil {
		return fmt.Errorf("making a client of the %s cluster, %w", c.options.Name, err)
	}
	c.Client = RecreatingEvicted(plain)
	return nil
}

// gated adds the feature gates to the arguments of a component.
func (c *Cluster) gated(args []string) []string {
	if c.options.FeatureGates == "" {
		return args
	}
	return append(args, "--feature-gates="+c.options.FeatureGates)
}

// startControllers starts the controller-manager, and of a cluster with nodes the scheduler and what nodes join by. It returns when
// controllers have begun their work.
func (c *Cluster) startControllers(ctx context.Context) error {
	controllers := storageControllers
	if c.options.Nodes {
		controllers = nodeControllers
	}
	args := []string{
		"--kubeconfig=" + c.pki(controllerManagerKubeconfig), "--controllers=" + strings.Join(controllers, ","),
		// There is one replica: no leader election, no metrics.
		"--leader-elect=false", "--secure-port=0", "--profiling=false",
		"--service-account-private-key-file=" + c.pki("sa.key"), "--root-ca-file=" + c.pki("ca.crt"),
		"--use-service-account-credentials", "--kube-api-qps=100", "--kube-api-burst=200",
	}
	if c.options.Nodes {
		args = append(args,
			"--cluster-signing-cert-file="+c.pki("ca.crt"), "--cluster-signing-key-file="+c.pki("ca.key"),
			"--allocate-node-cidrs", "--cluster-cidr="+c.options.PodCIDR, "--service-cluster-ip-range="+c.options.ServiceCIDR,
		)
	}
	name, err := c.start(ctx, "kube-controller-manager", RankControllers, c.gated(args))
	if err != nil {
		return err
	}
	if c.options.Nodes {
		args, err := c.schedulerArgs()
		if err != nil {
			return err
		}
		if _, err := c.start(ctx, "kube-scheduler", RankControllers, c.gated(args)); err != nil {
			return err
		}
	}
	// Pods are rejected before their service account exists.
	if err := Await(ctx, name+" to make the default service account", func(ctx context.Context) error {
		return c.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "default"}, &corev1.ServiceAccount{})
	}); err != nil || !c.options.Nodes {
		return err
	}
	return c.enableJoin(ctx)
}

// schedulerArgs are the arguments of the scheduler. With a configuration file it ignores its flag --kubeconfig.
func (c *Cluster) schedulerArgs() ([]string, error) {
	args := []string{"--leader-elect=false", "--secure-port=0", "--profiling=false"}
	if len(c.options.Packed) == 0 && len(c.options.Scheduler) == 0 {
		return append(args, "--kubeconfig="+c.pki(schedulerKubeconfig)), nil
	}
	content, err := c.schedulerConfiguration()
	if err != nil {
		return nil, fmt.Errorf("writing the configuration of the scheduler, %w", err)
	}
	file := filepath.Join(c.dir(), "scheduler.yaml")
	if err := pki.WriteFile(file, content); err != nil {
		return nil, err
	}
	return append(args, "--config="+file), nil
}

// schedulerConfiguration is the configuration of the scheduler, with its kubeconfig.
func (c *Cluster) schedulerConfiguration() ([]byte, error) {
	configuration := map[string]any{}
	if len(c.options.Scheduler) > 0 {
		if err := yaml.Unmarshal(c.options.Scheduler, &configuration); err != nil {
			return nil, err
		}
	} else if err := packing(c.options.Packed, configuration); err != nil {
		return nil, err
	}
	configuration["clientConnection"] = map[string]any{"kubeconfig": c.pki(schedulerKubeconfig)}
	return yaml.Marshal(configuration)
}

// packing reads config/scheduler/packing.yaml, with more resources, into the configuration.
func packing(resources []corev1.ResourceName, configuration map[string]any) error {
	if err := yaml.Unmarshal(scheduler.Packing, &configuration); err != nil {
		return err
	}
	typed := &configv1.KubeSchedulerConfiguration{}
	if err := yaml.Unmarshal(scheduler.Packing, typed); err != nil {
		return err
	}
	args := &configv1.NodeResourcesFitArgs{}
	if err := yaml.Unmarshal(typed.Profiles[0].PluginConfig[0].Args.Raw, args); err != nil {
		return err
	}
	for _, name := range resources {
		if !slices.ContainsFunc(args.ScoringStrategy.Resources, func(known configv1.ResourceSpec) bool { return known.Name == string(name) }) {
			args.ScoringStrategy.Resources = append(args.ScoringStrategy.Resources, configv1.ResourceSpec{Name: string(name), Weight: 1})
		}
	}
	configuration["profiles"].([]any)[0].(map[string]any)["pluginConfig"].([]any)[0].(map[string]any)["args"] = args
	return nil
}
