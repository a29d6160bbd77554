// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster runs Kubernetes control planes as plain processes on loopback: etcd, an API server and, as its options say, a
// controller-manager, a scheduler and what nodes join by, with the definitions, rights and programs of ours that it is to have.
// The process that starts them ends them, even if it is killed.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// Ranks of the processes of a control plane, for their order at shutdown: clients end before their API server.
const (
	RankEtcd        = 0
	RankAPIServer   = 10
	RankControllers = 20
	// RankClients is for clients of the clusters.
	RankClients = 30
)

// loopback is the address that all processes listen on, except API servers with another address.
const loopback = "127.0.0.1"

// Binaries finds programs in directories, the first directory first.
type Binaries []string

// Find returns the path of a program, or an error that says how to get it.
func (b Binaries) Find(name string) (string, error) {
	for _, dir := range b {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() && info.Mode().Perm()&0o111 != 0 {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("program %s is missing in %v; build it with `make tools build`", name, []string(b))
}

// Missing returns an error that names each of the programs that is missing.
func (b Binaries) Missing(names ...string) error {
	var errs []error
	for _, name := range names {
		_, err := b.Find(name)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Kubernetes returns the directories for a cluster whose control plane is of that minor version, such as 1.37. It is in versions/1.37 of a
// directory, or beside the other programs.
func (b Binaries) Kubernetes(ctx context.Context, minor string) (Binaries, error) {
	built := make(Binaries, 0, len(b))
	for _, dir := range b {
		built = append(built, filepath.Join(dir, "versions", minor))
	}
	server, err := slices.Concat(built, b).Find("kube-apiserver")
	if err != nil {
		return nil, err
	}
	// All programs are of one directory: a controller-manager must not be newer than its API server.
	found := Binaries{filepath.Dir(server)}
	if err := found.Missing("kube-controller-manager", "kube-scheduler", "kubeadm"); err != nil {
		return nil, err
	}
	release, err := found.KubernetesVersion(ctx)
	if err != nil {
		return nil, err
	}
	if got := fmt.Sprintf("%d.%d", release.Major(), release.Minor()); got != minor {
		return nil, fmt.Errorf("%s is of Kubernetes %s, and %q was asked for; build that with `make versions-tools VERSIONS=%s`, which "+
			"tools/versions must have", server, got, minor, minor)
	}
	return append(found, b...), nil
}

// KubernetesVersion returns the version of the control plane.
func (b Binaries) KubernetesVersion(ctx context.Context) (*version.Version, error) {
	server, err := b.Find("kube-apiserver")
	if err != nil {
		return nil, err
	}
	output, err := exec.CommandContext(ctx, server, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("asking %s for its version, %w", server, err)
	}
	found, err := version.ParseGeneric(strings.TrimPrefix(strings.TrimSpace(string(output)), "Kubernetes "))
	if err != nil {
		return nil, fmt.Errorf("reading the version of %s, %w", server, err)
	}
	return found, nil
}

// Start starts a program, by default under its own name.
func (b Binaries) Start(processes *process.Supervisor, program string, spec process.Spec) error {
	var err error
	if spec.Path, err = b.Find(program); err != nil {
		return err
	}
	spec.Name = cmp.Or(spec.Name, program)
	return processes.Start(spec)
}

// Await polls until the check succeeds. If the context ends first, the error has the awaited condition and the check's
// last error.
func Await(ctx context.Context, what string, check func(context.Context) error) error {
	if last := poll.Until(ctx, check); last != nil {
		return fmt.Errorf("waiting for %s, %w (last answer: %v)", what, context.Cause(ctx), last)
	}
	return nil
}

// AwaitURL polls until the URL answers with success.
func AwaitURL(ctx context.Context, what string, client *http.Client, url string) error {
	return Await(ctx, what, func(ctx context.Context) error { return CheckURL(ctx, client, url) })
}

// CheckURL returns an error unless the URL answers with success.
func CheckURL(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}
