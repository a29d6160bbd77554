// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplane "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// program is a program of a release.
type program struct {
	namespace, deployment string
	// lease that it must acquire, if it has leader election.
	lease string
	// leaseNamespace is that of the lease, if it is another one.
	leaseNamespace string
	// flags that replace a pod's token, mounts and ports.
	flags func() []string
	// secure metrics are served to those with the right to read them.
	secure bool
}

// start starts a command, which is interrupted when its context ends, and prints its log at the end of a test that has failed.
func start(t *testing.T, name string, command *exec.Cmd) {
	t.Helper()
	var log bytes.Buffer
	command.Stdout, command.Stderr = &log, &log
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = poll.Patience() // after SIGTERM
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() {
		if err := <-ended; t.Failed() {
			t.Logf("%s ended with %v:\n%s", name, err, log.Bytes())
		}
	})
}

// variables are the environment of a container.
func variables(container corev1.Container) []string {
	environment := []string{}
	for _, variable := range container.Env {
		environment = append(environment, variable.Name+"="+variable.Value)
	}
	return environment
}

// startPrograms runs the programs of the Deployments with their service accounts and arguments until the test ends, and
// waits until each is ready.
func startPrograms(t *testing.T, programs ...program) {
	t.Helper()
	for _, p := range programs {
		deployment := &appsv1.Deployment{}
		if err := environment.Client.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: p.deployment}, deployment); err != nil {
			t.Fatal(err)
		}
		pod := deployment.Spec.Template.Spec
		health, metrics := freeport.ForTest(t), freeport.ForTest(t)
		args := append(pod.Containers[0].Args, "--health-probe-bind-address="+health)
		if slices.ContainsFunc(pod.Containers[0].Ports, func(port corev1.ContainerPort) bool { return port.Name == "metrics" }) {
			args = append(args, "--metrics-bind-address="+metrics)
		}
		args = append(args, p.flags()...)
		command := exec.CommandContext(t.Context(), binary(t, pod.Containers[0].Name, "make build"), args...)
		command.Env = variables(pod.Containers[0])
		start(t, p.deployment, command)
		poll.Eventually(t, p.deployment+" is ready", func(ctx context.Context) error {
			return controlplane.CheckURL(ctx, http.DefaultClient, "http://"+health+"/readyz")
		})
		if p.secure {
			metricsAreForReaders(t, p.deployment, metrics)
		}
		if p.lease == "" {
			continue
		}
		poll.Eventually(t, p.deployment+" leads", func(ctx context.Context) error {
			lease := &coordinationv1.Lease{}
			err := environment.Client.Get(ctx, client.ObjectKey{Namespace: cmp.Or(p.leaseNamespace, p.namespace), Name: p.lease}, lease)
			if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "") {
				err = errors.New("the lease has no holder")
			}
			return err
		})
	}
}

// asAccount is a kubeconfig of a service account.
func asAccount(t *testing.T, namespace, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{}
	if err := environment.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, account); err != nil {
		t.Fatal(err)
	}
	return writeKubeconfig(t, &rest.Config{
		Host: environment.Config.Host, BearerToken: requestToken(t, account),
		TLSClientConfig: rest.TLSClientConfig{CAData: environment.Config.CAData},
	})
}
