// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/docker"
)

// network is Docker's, as kind names it.
const network = "kind"

// clusters are both by their role, the management cluster first.
func (w *Environment) clusters() iter.Seq2[string, cluster] {
	return func(yield func(string, cluster) bool) {
		_ = yield("management", w.state.Management) && yield("tenant", w.state.Tenant)
	}
}

// createCluster creates a cluster, unless it is taken, and writes its kubeconfig files.
func (w *Environment) createCluster(ctx context.Context, role string, cluster cluster) error {
	if !cluster.Taken {
		config := w.path(role + "-kind.yaml")
		content := fmt.Sprintf("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnetworking: {ipFamily: %s}\n", w.state.IPFamily)
		if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
			return fmt.Errorf("writing the configuration of a cluster, %w", err)
		}
		args := []string{"create", "cluster", "--name=" + cluster.Name, "--config=" + config, "--kubeconfig=" + w.path(role+".kubeconfig"),
			"--wait=2m"}
		if w.state.Image != "" {
			args = append(args, "--image="+w.state.Image)
		}
		if _, err := w.kind(ctx, args...); err != nil {
			return err
		}
	}
	if err := w.writeKubeconfig(ctx, cluster, w.path(role+".kubeconfig")); err != nil {
		return err
	}
	if err := w.writeKubeconfig(ctx, cluster, w.path(role+"-internal.kubeconfig"), "--internal"); err != nil {
		return err
	}
	w.say("the %s cluster %s is ready", role, cluster.Name)
	return nil
}

func (w *Environment) writeKubeconfig(ctx context.Context, cluster cluster, path string, flags ...string) error {
	content, err := w.kind(ctx, append([]string{"get", "kubeconfig", "--name=" + cluster.Name}, flags...)...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(content+"\n"), 0o600); err != nil {
		return fmt.Errorf("writing a kubeconfig file, %w", err)
	}
	return nil
}

// untilNetwork waits for the network, which the first cluster of a machine makes: two at once would make two.
func (w *Environment) untilNetwork(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		return w.hasNetwork(ctx)
	})
}

func (w *Environment) hasNetwork(ctx context.Context) (bool, error) {
	names, err := docker.Run(ctx, "network", "ls", "--filter", "name=^"+network+"$", "--format", "{{.Name}}")
	return names != "", err
}

// loadImages brings the images of the charts to the management cluster.
func (w *Environment) loadImages(ctx context.Context) error {
	for _, image := range []string{"manager", "webhook", "provider"} {
		if _, err := w.kind(ctx, "load", "image-archive", "--name="+w.state.Management.Name, w.bin("images", image+".tar")); err != nil {
			return err
		}
	}
	w.say("the images of `make images` are loaded")
	return nil
}

// addressOf is that of a container in the network, of the family that servers use.
func (w *Environment) addressOf(ctx context.Context, container string) (netip.Addr, error) {
	field := "IPAddress"
	if w.state.IPFamily == "ipv6" {
		field = "GlobalIPv6Address"
	}
	output, err := docker.Run(ctx, "inspect", "--format", "{{(index .NetworkSettings.Networks \""+network+"\")."+field+"}}", container)
	if err != nil {
		return netip.Addr{}, err
	}
	address, err := netip.ParseAddr(output)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("reading the address of container %s in the network %s, %w", container, network, err)
	}
	return address, nil
}

const (
	// noSchedule is the taint of control planes, which kind removes where there are no other nodes.
	noSchedule = "node-role.kubernetes.io/control-plane:NoSchedule"
	// kindRoot is in the kubelets' configuration, and a server's is not within that control group.
	kindRoot, noRoot = "cgroupRoot: /kubelet\n", "cgroupRoot: \"\"\n"
)

var clusterServer = regexp.MustCompile(`(server: https://)\S+`)

// prepareTenant makes the tenant cluster one that servers can join. clean takes it back.
func (w *Environment) prepareTenant(ctx context.Context) error {
	address, err := w.addressOf(ctx, w.state.Tenant.controlPlane())
	if err != nil {
		return err
	}
	// kind's certificate has the address, and kind's name for it is known to Docker's containers only.
	w.endpoint = net.JoinHostPort(address.String(), "6443")
	if err := w.checkVersion(ctx); err != nil {
		return err
	}
	// Pods that run beside the control plane would need no servers.
	if _, err := w.kubectl(ctx, w.TenantKubeconfig(), "taint", "nodes", "--all", "--overwrite", noSchedule); err != nil {
		return err
	}
	return w.editTenant(ctx, w.endpoint, kindRoot, noRoot, `{"node-role.kubernetes.io/control-plane": ""}`)
}

// editTenant changes what a server reads when it joins, and where kube-system runs. Servers have no images of kind's.
func (w *Environment) editTenant(ctx context.Context, endpoint, root, newRoot, selector string) error {
	err := w.editConfigMap(ctx, "kube-system", "kubelet-config", "kubelet", func(content string) string {
		return strings.Replace(content, root, newRoot, 1)
	})
	if err != nil {
		return err
	}
	err = w.editConfigMap(ctx, "kube-public", "cluster-info", "kubeconfig", func(content string) string {
		return clusterServer.ReplaceAllString(content, "${1}"+endpoint)
	})
	if err != nil {
		return err
	}
	output, err := w.kubectl(ctx, w.TenantKubeconfig(), "get", "daemonsets", "--namespace=kube-system", "--output=name")
	if err != nil {
		return err
	}
	for daemonSet := range strings.FieldsSeq(output) {
		if _, err := w.kubectl(ctx, w.TenantKubeconfig(), "patch", daemonSet, "--namespace=kube-system", "--type=merge",
			`--patch={"spec": {"template": {"spec": {"nodeSelector": `+selector+`}}}}`); err != nil {
			return err
		}
	}
	return nil
}

func (w *Environment) editConfigMap(ctx context.Context, namespace, name, key string, edit func(string) string) error {
	content, err := w.kubectl(ctx, w.TenantKubeconfig(), "get", "configmap", name, "--namespace="+namespace,
		"--output=jsonpath={.data."+key+"}")
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{key: edit(content + "\n")}})
	if err != nil {
		return err
	}
	_, err = w.kubectl(ctx, w.TenantKubeconfig(), "patch", "configmap", name, "--namespace="+namespace, "--type=merge",
		"--patch="+string(patch))
	return err
}
