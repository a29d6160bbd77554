// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/ironic"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
)

// Names of programs in bin, and of their processes.
const (
	operatorName = "baremetal-operator"
	managerName  = "manager"
	rackName     = "rack"
)

// startIronic starts Ironic, and the web server of the images that it hands to servers.
func (s *Stack) startIronic(ctx context.Context) error {
	var err error
	if s.Media, err = startMedia(s.config.Host); err != nil {
		return err
	}
	s.Ironic, err = ironic.Start(ctx, ironic.Config{
		Tree: filepath.Join(s.config.Bin, "ironic"), Dir: filepath.Join(s.config.Dir, "ironic"), Host: s.config.Host, Supervisor: s.Processes,
		AgentTimeout: s.config.AgentTimeout, PowerTimeout: s.config.PowerTimeout, Environment: s.environment(),
	})
	if err == nil {
		s.config.Progress("Ironic takes work at %s", s.Ironic.URL)
	}
	return err
}

// startOperator starts Metal3's operator, with Ironic behind it.
func (s *Stack) startOperator(ctx context.Context) error {
	health, err := address()
	if err != nil {
		return err
	}
	err = s.run(process.Spec{
		Name: operatorName, Rank: controlplane.RankClients,
		Args: []string{
			"--namespace=" + HostsNamespace, "--dev",
			// No certificates and no metrics.
			"--webhook-port=0", "--metrics-addr=0", "--health-addr=" + health,
			"--kube-api-qps=100", "--kube-api-burst=200", "--controller-concurrency=8",
		},
		Env: []string{
			"KUBECONFIG=" + s.Kubeconfig, "IRONIC_ENDPOINT=" + s.Ironic.Endpoint, "DEPLOY_ISO_URL=" + s.Media.DeployISO,
			"PROVISIONING_NETWORK_DISABLED=true", "METAL3_AUTH_ROOT_DIR=" + filepath.Join(s.config.Dir, "no-auth"),
		},
	})
	if err != nil {
		return err
	}
	if err := controlplane.AwaitURL(ctx, operatorName+" to be ready", http.DefaultClient, "http://"+health+"/readyz"); err != nil {
		return err
	}
	s.config.Progress("%s is ready", operatorName)
	return nil
}

// startManager starts our manager, with its own rights.
func (s *Stack) startManager(ctx context.Context) error {
	kubeconfig, err := sandbox.GrantManager(ctx, s.cluster, s.Client, MachinesNamespace, s.config.Dir)
	if err != nil {
		return err
	}
	// One replica.
	return s.startOurs(ctx, managerName, append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect=false"}, s.config.ManagerFlags...)...)
}

// startOurs starts one of our programs without metrics, and returns when it is ready.
func (s *Stack) startOurs(ctx context.Context, name string, args ...string) error {
	health, err := address()
	if err != nil {
		return err
	}
	args = append(args, "--metrics-bind-address=0", "--health-probe-bind-address="+health)
	if err := s.run(process.Spec{Name: name, Rank: controlplane.RankClients + 1, Args: args}); err != nil {
		return err
	}
	if err := controlplane.AwaitURL(ctx, "the "+name+" to be ready", http.DefaultClient, "http://"+health+"/readyz"); err != nil {
		return err
	}
	s.config.Progress("our %s is ready", name)
	return nil
}

// run starts a program that is named like its process.
func (s *Stack) run(spec process.Spec) error {
	path, err := controlplane.Binaries{s.config.Bin}.Find(spec.Name)
	if err != nil {
		return err
	}
	spec.Path, spec.Env = path, append(spec.Env, s.environment()...)
	return s.Processes.Start(spec)
}

// environment keeps the files of a program within the stack.
func (s *Stack) environment() []string {
	return []string{"HOME=" + filepath.Join(s.config.Dir, "home"), "TMPDIR=" + filepath.Join(s.config.Dir, "tmp")}
}

// address is a free one on loopback.
func address() (string, error) {
	ports, err := controlplane.FreePorts(1)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0]), nil
}
