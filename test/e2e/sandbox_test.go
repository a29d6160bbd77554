// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/e2e/clusters"
	sandboxes "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
)

// opened are the clusters of this run, once a test has needed them.
var opened *clusters.Clusters

// topologyLabels are those of the programs.
var topologyLabels = append(topology.Defaults(), "rack="+leafLabel, "datacenter="+corev1.LabelTopologyRegion,
	"nvlink-domain=nvidia.com/gpu.clique")

// sandbox is a sandbox whose processes the tests may kill.
type sandbox struct {
	box *sandboxes.Sandbox
	dir string
}

func TestMain(m *testing.M) {
	flag.Parse()
	ctrllog.SetLogger(logr.Discard())
	// Tests wait for servers and for other tests of their group, and not for cores.
	if err := flag.Set("test.parallel", "64"); err != nil {
		fmt.Fprintln(os.Stderr, "error: setting -parallel,", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := atEnd(); err != nil {
		fmt.Fprintln(os.Stderr, "error: putting the clusters back,", err)
		code = 1
	}
	if opened != nil {
		if err := opened.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// aim implements programs.
func (s *sandbox) aim(_ context.Context, program string) (kill func(context.Context) error, err error) {
	content, err := os.ReadFile(filepath.Join(s.dir, "run", program+".pid"))
	if err != nil {
		return nil, fmt.Errorf("finding the %s process, %w", program, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return nil, fmt.Errorf("reading the pid of %s, %w", program, err)
	}
	return func(context.Context) error { return syscall.Kill(pid, syscall.SIGKILL) }, nil
}

// stop implements programs.
func (s *sandbox) stop(_ context.Context, program string) (start func(context.Context) error, err error) {
	processes := s.box.Processes()
	return func(context.Context) error { return processes.StartAgain(program) }, processes.Stop(program)
}

// stopManagement implements programs.
func (s *sandbox) stopManagement(ctx context.Context) (start func(context.Context) error, err error) {
	return s.stop(ctx, sandboxes.ManagementAPIServerName)
}

// isReady implements programs.
func (s *sandbox) isReady(ctx context.Context, program string) (string, error) {
	if err := cluster.CheckReady(ctx, s.box.Processes(), program); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// metrics implements programs.
func (s *sandbox) metrics(_ *testing.T, program string) (url, token string) {
	return s.box.Metrics(program), ""
}

// logs implements programs.
func (s *sandbox) logs(_ context.Context, program string) (map[string][]byte, error) {
	content, err := os.ReadFile(filepath.Join(s.dir, "log", program+".log"))
	if err != nil {
		return nil, err
	}
	all := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	return map[string][]byte{program: bytes.Join(all[max(0, len(all)-logLines):], []byte("\n"))}, nil
}
