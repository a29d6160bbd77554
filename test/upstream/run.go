// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstream runs Karpenter's own regression and disruption suites against this provider, on a sandbox. They are
// sigs.k8s.io/karpenter/test/suites/regression and disruption, built unchanged from the module that this project depends on. Only
// the default node class and the default pool are ours. docs/conformance.md has the results.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

// Options of a run.
type Options struct {
	// Dir is the directory of the sandbox. It keeps the logs.
	Dir string
	// Binaries are the directories of the programs.
	Binaries cluster.Binaries
	// Focus is a regular expression that narrows down the specs of the lane; empty for all of them.
	Focus string
	// Small selects a fleet of two dozen servers, unless the lane has one of its own.
	Small bool
	// Timeout of the suite, without the sandbox's start.
	Timeout time.Duration
	// Progress receives the progress of the sandbox, and the path of the suite's output.
	Progress io.Writer
}

// Run starts a sandbox, runs a lane of the suite on it, and stops it. It returns how each spec ended. Specs that fail are no
// error; a suite that does not get to run them is.
func Run(ctx context.Context, lane Lane, options Options) ([]Spec, error) {
	file := fleetFile
	switch {
	case lane.Fleet != nil:
		file = lane.Fleet
	case options.Small:
		file = smallFleetFile
	}
	servers, err := fleet.Parse("fleet.yaml", file)
	if err != nil {
		return nil, err
	}
	program, err := options.Binaries.Find(lane.Program)
	if err != nil {
		return nil, err
	}
	stages, err := kwokStages(ctx)
	if err != nil {
		return nil, err
	}
	var scheduler []byte
	if lane.Kind {
		if scheduler, err = schedulerOfKind(ctx); err != nil {
			return nil, err
		}
	}
	box, err := sandbox.Up(ctx, sandbox.Config{
		Dir: options.Dir, Binaries: options.Binaries, Fleet: servers, Progress: options.Progress,
		ProviderArgs: lane.ProviderArgs, KwokConfigs: stages, Scheduler: scheduler,
	})
	if err != nil {
		return nil, fmt.Errorf("starting a sandbox, %w", err)
	}
	defer box.Close()
	var specs []Spec
	err = box.Run(ctx, func(ctx context.Context) error {
		if err := prepare(ctx, box, len(servers)); err != nil {
			return err
		}
		group, ctx := errgroup.WithContext(ctx)
		following, ended := context.WithCancel(ctx)
		defer ended()
		if lane.Kind {
			kind, err := newKind(ctx, box)
			if err != nil {
				return err
			}
			group.Go(func() error { return kind.run(following) })
		}
		group.Go(func() (err error) {
			defer ended()
			specs, err = runSuite(ctx, program, box.Kubeconfigs().Tenant, lane, options)
			return err
		})
		return group.Wait()
	})
	return specs, err
}

// karpenterSource is the folder of the Karpenter module.
func karpenterSource(ctx context.Context) (string, error) {
	source, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/karpenter").Output()
	if err != nil {
		return "", fmt.Errorf("finding the Karpenter module; this must run in the source tree, %w", err)
	}
	return strings.TrimSpace(string(source)), nil
}

// kwokStages are Karpenter's own kwok stages, for pods that never get ready or terminate slowly. The suite needs them.
func kwokStages(ctx context.Context) ([]string, error) {
	source, err := karpenterSource(ctx)
	if err != nil {
		return nil, err
	}
	pattern := filepath.Join(source, "hack", "kwok", "stages", "*.yaml")
	stages, err := filepath.Glob(pattern)
	if err != nil || len(stages) == 0 {
		return nil, fmt.Errorf("there are no stages for kwok at %s", pattern)
	}
	return stages, nil
}

// prepare creates the NodeTypes, and returns when all servers are available.
func prepare(ctx context.Context, box *sandbox.Sandbox, servers int) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("building the scheme, %w", err)
	}
	management, err := client.New(box.ManagementConfig(), client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connecting to the management cluster, %w", err)
	}
	objects, err := examples.Parse("manifests/management.yaml", managementFile)
	if err != nil {
		return err
	}
	if err := examples.ApplyAll(ctx, management, objects); err != nil {
		return err
	}
	return cluster.Await(ctx, "the servers to be available", func(ctx context.Context) error {
		nodeTypes := &v1alpha1.NodeTypeList{}
		if err := management.List(ctx, nodeTypes); err != nil {
			return err
		}
		available := 0
		for _, nodeType := range nodeTypes.Items {
			available += int(nodeType.Status.Capacity.Available)
		}
		if available != servers {
			return fmt.Errorf("%d of %d are", available, servers)
		}
		return nil
	})
}

// runSuite runs the suite and reads its report.
func runSuite(ctx context.Context, program, kubeconfig string, lane Lane, options Options) ([]Spec, error) {
	args, err := writeDefaults(options.Dir, lane)
	if err != nil {
		return nil, err
	}
	report := filepath.Join(options.Dir, "log", "suite.json")
	output, err := os.Create(filepath.Join(options.Dir, "log", "suite.log"))
	if err != nil {
		return nil, fmt.Errorf("opening the suite's log, %w", err)
	}
	defer func() { _ = output.Close() }()
	_, _ = fmt.Fprintf(options.Progress, "the suite runs; its output is %s\n", output.Name())

	args = append(args, "--kubeconfig="+kubeconfig, "--ginkgo.v", "--ginkgo.no-color", "--ginkgo.flake-attempts=2",
		"--ginkgo.json-report="+report, "--ginkgo.timeout="+
			options.Timeout.String())
	command := exec.CommandContext(ctx, program, slices.Concat(args, lane.SuiteArgs, lane.filter(options.Focus))...)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// An interrupted suite still writes its report.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.WaitDelay = time.Minute
	err = command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("running %s, %w", program, err)
	}
	specs, readErr := readReport(report)
	if readErr != nil {
		return nil, errors.Join(readErr, err)
	}
	if len(specs) == 0 {
		return nil, fmt.Errorf("no spec of the lane %s matches %q; see %s", lane.Name, options.Focus, output.Name())
	}
	return specs, nil
}
