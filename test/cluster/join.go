// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"text/template"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstraptokenapi "k8s.io/cluster-bootstrap/token/api"
	bootstraptoken "k8s.io/cluster-bootstrap/token/util"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
)

// joinConfig is the configuration of kubeadm's phases. A joining node reads the kubelet's settings.
var joinConfig = template.Must(template.New("kubeadm").Parse(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens:
- token: "{{ .Token }}"
  ttl: 5m0s
  usages: [signing, authentication]
  groups: [{{ .Group }}]
localAPIEndpoint: {advertiseAddress: {{ .Unused }}, bindPort: {{ .Port }}}
nodeRegistration: {criSocket: "unix:///run/containerd/containerd.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
clusterName: sandbox-{{ .Name }}
kubernetesVersion: {{ .Version }}
controlPlaneEndpoint: "{{ .Endpoint }}"
networking: {podSubnet: "{{ .PodCIDR }}", serviceSubnet: "{{ .ServiceCIDR }}"}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
`))

// enableJoin runs kubeadm's phases for what a node needs to join: the cluster-info, kubeadm-config and kubelet-config
// ConfigMaps, and the rights of bootstrap tokens to read them and to request certificates. It deletes kubeadm's token.
func (c *Cluster) enableJoin(ctx context.Context) error {
	kubeadm, err := c.options.Binaries.Find("kubeadm")
	if err != nil {
		return err
	}
	clientset, err := c.clientset()
	if err != nil {
		return err
	}
	version, err := clientset.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("asking the %s cluster for its version, %w", c.options.Name, err)
	}
	// kubeadm always makes a token, in the phase that makes cluster-info.
	token, err := bootstraptoken.GenerateBootstrapToken()
	if err != nil {
		return fmt.Errorf("making a bootstrap token, %w", err)
	}
	var content bytes.Buffer
	err = joinConfig.Execute(&content, map[string]any{
		"Token": token, "Group": bootstraptokenapi.BootstrapDefaultGroup + ":kubeadm:default-node-token",
		// kubeadm requires an address other than loopback, but these phases do not write it anywhere.
		"Unused": "192.0.2.1",
		"Name":   c.options.Name, "Port": c.port, "Version": version.GitVersion,
		"Endpoint": strings.TrimPrefix(c.Server, "https://"), "PodCIDR": c.options.PodCIDR, "ServiceCIDR": c.options.ServiceCIDR,
	})
	if err != nil {
		return fmt.Errorf("writing kubeadm's configuration, %w", err)
	}
	file := c.pki("kubeadm.yaml")
	if err := pki.WriteFile(file, content.Bytes()); err != nil {
		return err
	}
	for _, phase := range [][]string{{"upload-config", "all"}, {"bootstrap-token", "--skip-token-print"}} {
		args := append([]string{"init", "phase"}, phase...)
		args = append(args, "--config", file, "--kubeconfig", c.Kubeconfig)
		if output, err := exec.CommandContext(ctx, kubeadm, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("running kubeadm %s, %w: %s", strings.Join(args[:3], " "), err, bytes.TrimSpace(output))
		}
	}
	id, _, _ := strings.Cut(token, ".")
	name := bootstraptokenapi.BootstrapTokenSecretPrefix + id
	if err := clientset.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, name, metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the token that kubeadm made, %w", err)
	}
	return nil
}
