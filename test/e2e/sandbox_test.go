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
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/audit"
	sandboxes "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

// running is the sandbox that this run of the tests started, if it did.
var running *sandbox

// sandbox is a sandbox whose processes the tests may kill.
type sandbox struct {
	box         *sandboxes.Sandbox
	dir         string
	kubeconfigs sandboxes.Kubeconfigs
}

func TestMain(m *testing.M) {
	flag.Parse()
	// Tests wait for servers and for other tests of their group, and not for cores.
	if err := flag.Set("test.parallel", "64"); err != nil {
		fmt.Fprintln(os.Stderr, "error: setting -parallel,", err)
		os.Exit(1)
	}
	code := m.Run()
	if running != nil {
		running.box.Close()
		if err := os.RemoveAll(running.dir); err != nil {
			fmt.Fprintln(os.Stderr, "error: removing the sandbox,", err)
			code = 1
		}
	}
	os.Exit(code)
}

func startSandbox() (*sandbox, error) {
	assets, err := binary("etcd")
	if err != nil {
		return nil, err
	}
	content, err := examples.Read(examples.FleetFile)
	if err != nil {
		return nil, err
	}
	servers, err := fleet.Parse(examples.FleetFile, content)
	if err != nil {
		return nil, err
	}
	withDevices, err := fleet.Parse("the servers with devices", []byte(deviceServers))
	if err != nil {
		return nil, err
	}
	servers = append(servers, withDevices...)
	others, err := fleet.Parse("the other servers", []byte(otherServers))
	if err != nil {
		return nil, err
	}
	servers = append(servers, others...)
	dir, err := os.MkdirTemp("", "e2e-sandbox-")
	if err != nil {
		return nil, err
	}
	fmt.Println("starting a sandbox for the tests in", dir)
	box, err := sandboxes.Up(context.Background(), sandboxes.Config{
		Dir:       dir,
		Binaries:  controlplane.Binaries{filepath.Dir(assets)},
		Fleet:     servers,
		Progress:  os.Stdout,
		AuditLogs: os.Getenv(audit.DirectoryVariable),
	})
	if err != nil {
		return nil, fmt.Errorf("starting a sandbox, %w", err)
	}
	running = &sandbox{box: box, dir: dir, kubeconfigs: box.Kubeconfigs()}
	return running, nil
}

// needsSandbox skips a test that kills processes where there are none to kill.
func (w *fixture) needsSandbox(t *testing.T) {
	t.Helper()
	if w.sandbox == nil {
		t.Skip("this test kills processes; it needs a sandbox of its own, so unset " + managementVariable)
	}
}

// needsServers skips a test about servers that are not in the reference fleet (with devices, of other groups, or that Metal3's demo mode
// has trouble with) on clusters that do not have them.
func (w *fixture) needsServers(t *testing.T) {
	t.Helper()
	if w.sandbox == nil {
		t.Skip("this test is about servers beside the reference fleet, which only a sandbox of its own has, so unset " + managementVariable)
	}
}

func (s *sandbox) pid(t *testing.T, process string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, "run", process+".pid"))
	if err != nil {
		t.Fatalf("finding the %s process, %v", process, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		t.Fatalf("reading the pid of %s, %v", process, err)
	}
	return pid
}

// keepLogs prints the end of the logs of our own processes, for a test that failed.
func (s *sandbox) keepLogs(t *testing.T) {
	t.Helper()
	const lines = 40
	for _, process := range []string{"manager", "provider", "webhook"} {
		content, err := os.ReadFile(filepath.Join(s.dir, "log", process+".log"))
		if err != nil {
			t.Logf("reading the log of the %s, %v", process, err)
			continue
		}
		all := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
		t.Logf("the last lines of the log of the %s:\n%s", process, bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
	}
}
