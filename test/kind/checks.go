// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/docker"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/dradriver"
)

// minimumMemory is four times what two clusters, Metal3 and six servers that have joined were seen to take: tests are built meanwhile.
const minimumMemory = 6 << 30

// answerTimeout is how long the daemon of Docker may take to answer. A test sets it.
var answerTimeout = 10 * time.Second

// built are the files in bin that an environment is made of.
var built = []string{
	"images/manager.tar", "images/provider.tar", "images/webhook.tar", "server-image/.layer", "ironic/ironic", "crds/metal3",
	"baremetal-operator", "boot-server", "helm", "kubectl", "kubelet", "metal-host", "rack",
}

// check returns why the wanted environment cannot be made. It makes nothing.
func (w *Environment) check(ctx context.Context) error {
	if families := []string{"ipv4", "dual", "ipv6"}; !slices.Contains(families, w.state.IPFamily) {
		return fmt.Errorf("the IP family is %q: it must be one of %s", w.state.IPFamily, strings.Join(families, ", "))
	}
	if w.state.Management.Name == w.state.Tenant.Name {
		return fmt.Errorf("management and tenant are both the cluster %s: they must be two", w.state.Tenant.Name)
	}
	if w.state.DRADriver && w.state.Tenant.Taken {
		return fmt.Errorf("the DRA driver would stay in the kind cluster %s: leave KIND_TENANT unset", w.state.Tenant.Name)
	}
	for _, check := range []func(context.Context) error{w.checkDocker, w.checkBuilt, w.checkClusters, w.checkNames, w.checkImage} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *Environment) checkDocker(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout,
		fmt.Errorf("its daemon has not answered for %s: restart it", answerTimeout))
	defer cancel()
	if err := docker.Check(ctx); err != nil {
		return err
	}
	output, err := docker.Run(ctx, "info", "--format", "{{json .}}")
	if err != nil {
		return err
	}
	info := struct {
		MemTotal        int64
		SecurityOptions []string
	}{}
	if err := json.Unmarshal([]byte(output), &info); err != nil {
		return fmt.Errorf("reading what docker info prints, %w", err)
	}
	if info.MemTotal < minimumMemory {
		return fmt.Errorf("there are %.1f GiB of memory for Docker, and an environment needs %d GiB: give it more",
			float64(info.MemTotal)/(1<<30), minimumMemory>>30)
	}
	if slices.Contains(info.SecurityOptions, "name=rootless") {
		return fmt.Errorf("the daemon of Docker is rootless, and servers that boot as containers need one that runs as root")
	}
	w.noteLimit()
	return nil
}

// Instances of inotify, of which a user has a number on a machine, and root has all of these: without one, systemd or kubelet ends.
const (
	instancesOfClusters = 70 // two clusters, and some more for what else runs
	instancesOfServer   = 13
)

// noteLimit says how many servers can run at once, where that is fewer than there are.
func (w *Environment) noteLimit() {
	const setting = "fs.inotify.max_user_instances"
	content, _ := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if limit, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && limit < 512 {
		w.say("%s is %d: about %d servers can run at once; `sudo sysctl %s=512` allows all", setting, limit,
			max(0, limit-instancesOfClusters)/instancesOfServer, setting)
	}
}

func (w *Environment) checkBuilt(context.Context) error {
	for _, file := range built {
		if _, err := os.Stat(w.bin(file)); err != nil {
			return fmt.Errorf("there is no %s: `make kind-up` builds it", w.bin(file))
		}
	}
	if !w.state.DRADriver {
		return nil
	}
	if _, err := os.Stat(w.bin(dradriver.Program)); err != nil {
		return fmt.Errorf("there is no %s: `make dra-tools` builds it", w.bin(dradriver.Program))
	}
	return nil
}

// checkClusters checks that the clusters to create are not there, and that those to take are, and have nothing of Metal3 or ours.
func (w *Environment) checkClusters(ctx context.Context) error {
	output, err := w.kind(ctx, "get", "clusters")
	if err != nil {
		return err
	}
	clusters := strings.Fields(output)
	for role, cluster := range w.clusters() {
		switch exists := slices.Contains(clusters, cluster.Name); {
		case !cluster.Taken && exists:
			return fmt.Errorf("the kind cluster %s is there already, and not of this checkout: delete it by `kind delete cluster --name %s`, "+
				"or take it by KIND_%s=%s", cluster.Name, cluster.Name, strings.ToUpper(role), cluster.Name)
		case cluster.Taken && !exists:
			return fmt.Errorf("there is no kind cluster %s, which is to be the %s cluster: create it by `kind create cluster --name %s`, "+
				"or leave KIND_%s unset", cluster.Name, role, cluster.Name, strings.ToUpper(role))
		case cluster.Taken:
			if err := w.checkTaken(ctx, role, cluster); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Environment) checkTaken(ctx context.Context, role string, taken cluster) error {
	kubeconfig := w.path(role + ".kubeconfig")
	if err := w.writeKubeconfig(ctx, taken, kubeconfig); err != nil {
		return err
	}
	output, err := w.kubectl(ctx, kubeconfig, "get", "crd", "--output=name")
	if err != nil {
		return err
	}
	for crd := range strings.FieldsSeq(output) {
		if isOurs(crd) {
			return fmt.Errorf("the kind cluster %s has %s already, which is deleted with an environment: take a cluster without Metal3 and "+
				"Karpenter", taken.Name, crd)
		}
	}
	if role != "tenant" {
		return nil
	}
	output, err = w.kubectl(ctx, kubeconfig, "get", "nodes", "--selector=!node-role.kubernetes.io/control-plane", "--output=name")
	if err != nil {
		return err
	}
	if output != "" {
		return fmt.Errorf("the kind cluster %s has nodes for pods, which then need no servers: take a tenant cluster that has control-plane "+
			"nodes only", taken.Name)
	}
	return w.checkVersion(ctx)
}

// checkNames checks that no container has a name that ours will have.
func (w *Environment) checkNames(ctx context.Context) error {
	output, err := docker.Run(ctx, "ps", "--all", "--format", "{{.Names}}")
	if err != nil {
		return err
	}
	names := w.metalContainers()
	for _, cluster := range w.clusters() {
		if !cluster.Taken {
			names = append(names, cluster.controlPlane())
		}
	}
	for _, name := range names {
		if contains(output, name) {
			return fmt.Errorf("there is a container %s already, and not of this checkout: remove it by `docker rm -f -v %s`", name, name)
		}
	}
	return nil
}

// checkImage checks the Kubernetes of a node image that was named. Of kind's own nothing is known before a cluster runs it.
func (w *Environment) checkImage(ctx context.Context) error {
	if w.state.Image == "" || w.state.Tenant.Taken {
		return nil
	}
	kubernetes, err := docker.Run(ctx, "run", "--rm", "--entrypoint=cat", w.state.Image, "/kind/version")
	if err != nil {
		return fmt.Errorf("%s is no node image of kind, %w", w.state.Image, err)
	}
	return w.compareVersions(ctx, "the node image "+w.state.Image, kubernetes)
}

// checkVersion checks the tenant cluster that runs.
func (w *Environment) checkVersion(ctx context.Context) error {
	output, err := w.kubectl(ctx, w.TenantKubeconfig(), "version", "--output=json")
	if err != nil {
		return err
	}
	found := struct {
		ServerVersion struct{ GitVersion string }
	}{}
	if err := json.Unmarshal([]byte(output), &found); err != nil {
		return fmt.Errorf("reading the version of the tenant cluster, %w", err)
	}
	return w.compareVersions(ctx, "the kind cluster "+w.state.Tenant.Name, found.ServerVersion.GitVersion)
}

// compareVersions checks that the servers' kubelet is not newer than the Kubernetes that it is to join.
func (w *Environment) compareVersions(ctx context.Context, what, kubernetes string) error {
	output, err := w.run(ctx, w.bin("kubelet"), "--version")
	if err != nil {
		return err
	}
	kubelet, err := version.ParseGeneric(strings.TrimPrefix(output, "Kubernetes "))
	if err != nil {
		return fmt.Errorf("reading the version of the servers' kubelet, %w", err)
	}
	has, err := version.ParseGeneric(kubernetes)
	if err != nil {
		return fmt.Errorf("reading the Kubernetes version of %s, %w", what, err)
	}
	if has.Major() != kubelet.Major() || has.Minor() < kubelet.Minor() {
		return fmt.Errorf("%s has Kubernetes v%s, and the servers' kubelet is v%s, which must not be newer: take a node image of v%d.%d or later",
			what, has, kubelet, kubelet.Major(), kubelet.Minor())
	}
	return nil
}
