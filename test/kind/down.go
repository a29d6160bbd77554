// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/docker"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/metal"
)

// Down deletes what Up has made, all of it or a part, and returns whether there was anything. Clusters that were taken stay, without
// what is ours. images deletes the image of Metal3's containers too, which the next Up would use again.
func (w *Environment) Down(ctx context.Context, images bool) (found bool, err error) {
	unlock, err := w.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	if found, err = w.load(); err != nil {
		return found, err
	}
	if images {
		defer func() { err = errors.Join(err, metal.RemoveImage(ctx)) }()
	}
	if !found {
		return false, nil
	}
	return true, w.delete(ctx)
}

// delete deletes what the state says. The state itself goes last: what could not be deleted is tried again by the next one.
func (w *Environment) delete(ctx context.Context) error {
	w.say("deleting what was made")
	errs := []error{metal.Down(ctx, w.state.Management.Name)}
	for role, cluster := range w.clusters() {
		var err error
		if cluster.Taken {
			err = w.clean(ctx, role, cluster)
		} else {
			_, err = w.kind(ctx, "delete", "cluster", "--name="+cluster.Name, "--kubeconfig="+w.path(role+".kubeconfig"))
		}
		errs = append(errs, err)
	}
	if w.state.Network {
		errs = append(errs, w.deleteNetwork(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, name := range []string{"fleet", "metal", "page", "management*", "tenant*"} {
		files, _ := filepath.Glob(w.path(name)) // the pattern is a good one
		for _, file := range files {
			errs = append(errs, os.RemoveAll(file))
		}
	}
	w.say("everything is deleted")
	return errors.Join(append(errs, os.Remove(w.path("state.json")))...)
}

// deleteNetwork deletes Docker's network, unless another cluster has come to use it.
func (w *Environment) deleteNetwork(ctx context.Context) error {
	if has, err := w.hasNetwork(ctx); err != nil || !has {
		return err
	}
	containers, err := docker.Run(ctx, "network", "inspect", "--format", "{{len .Containers}}", network)
	if err == nil && containers == "0" {
		_, err = docker.Run(ctx, "network", "rm", network)
	}
	return err
}

// isOurs returns whether a CustomResourceDefinition is Metal3's, Karpenter's or this project's.
func isOurs(crd string) bool {
	return strings.HasSuffix(crd, ".metal3.io") || strings.HasSuffix(crd, ".karpenter.sh") ||
		strings.HasSuffix(crd, "capacitybuffers.autoscaling.x-k8s.io")
}

// namespaceTimeout is long enough for what is in a namespace to end, and finds a finalizer that nothing removes.
const namespaceTimeout = "2m"

// clean removes what is ours from a cluster that was taken. No program runs that would remove a finalizer.
func (w *Environment) clean(ctx context.Context, role string, taken cluster) error {
	output, err := w.kind(ctx, "get", "clusters")
	if err != nil {
		return err
	}
	if !contains(output, taken.Name) {
		return nil // its owner has deleted it
	}
	kubeconfig := w.path(role + ".kubeconfig")
	if err := w.writeKubeconfig(ctx, taken, kubeconfig); err != nil {
		return err
	}
	kubectl := func(args ...string) string {
		var output string
		if err == nil {
			output, err = w.kubectl(ctx, kubeconfig, args...)
		}
		return output
	}
	for _, release := range []struct{ name, namespace string }{{tenantName, tenantName}, {releaseNamespace, releaseNamespace}} {
		if err == nil {
			_, err = w.run(ctx, w.bin("helm"), "uninstall", release.name, "--namespace="+release.namespace, "--ignore-not-found", "--wait",
				"--kubeconfig="+kubeconfig)
		}
	}
	kubectl("delete", "validatingadmissionpolicies,validatingadmissionpolicybindings", "--selector=app.kubernetes.io/managed-by=karpenter-metal3-provider")
	kubectl("delete", "leases", "--namespace=kube-system", "karpenter-metal3-provider", "karpenter-metal3-provider-dra", "--ignore-not-found")
	// What there is, in which there may be finalizers: kinds of ours, with all objects, and others, by flags.
	type kind struct{ name, flag string }
	var kinds []kind
	for crd := range strings.FieldsSeq(kubectl("get", "crd", "--output=name")) {
		if isOurs(crd) {
			kinds = append(kinds, kind{crd[strings.Index(crd, "/")+1:], "--all-namespaces"})
		}
	}
	if role == "tenant" {
		kinds = append(kinds, kind{"nodes", "--selector=karpenter.sh/nodepool"})
	} else {
		kinds = append(kinds, kind{"secrets", "--namespace=" + hostNamespace}) // baremetal-operator holds those of BMCs
	}
	for _, kind := range kinds {
		objects := kubectl("get", kind.name, kind.flag, `--output=jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
		for object := range strings.FieldsSeq(objects) {
			namespace, name, _ := strings.Cut(object, "/")
			kubectl("patch", kind.name, name, "--namespace="+namespace, "--type=merge", `--patch={"metadata": {"finalizers": null}}`)
			if err != nil && strings.Contains(err.Error(), "(NotFound)") {
				err = nil // it went with its owner
			}
			kubectl("delete", kind.name, name, "--namespace="+namespace, "--ignore-not-found")
		}
		if isOurs(kind.name) {
			kubectl("delete", "crd", kind.name)
		}
	}
	kubectl("delete", "namespace", tenantName, releaseNamespace, hostNamespace, "--ignore-not-found", "--timeout="+namespaceTimeout)
	if err != nil || role != "tenant" {
		return err
	}
	_, err = w.kubectl(ctx, kubeconfig, "taint", "nodes", "--all", noSchedule+"-")
	if err != nil && !strings.Contains(err.Error(), "not found") {
		return err
	}
	return w.editTenant(ctx, taken.controlPlane()+":6443", noRoot, kindRoot, `{"node-role.kubernetes.io/control-plane": null}`)
}
