// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/server"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// enabled is the environment variable that the tests run with.
const enabled = "E2E_METAL"

// bin is the directory that has the programs.
var bin string

// TestMain lets subtests for all servers run at the same time, on any number of processors.
func TestMain(m *testing.M) {
	flag.Parse()
	path, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	if bin = path; err == nil {
		err = flag.Set("test.parallel", "32")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// fixture is what all tests with servers have.
type fixture struct {
	// dir is where everything goes: logs in log, and the files of each server in servers.
	dir string
	// network is what servers are plugged into; nil where none boots.
	network *network.Bridge
	// marks are texts by which processes, mounts and control groups of the test are known, and links the names of its
	// network interfaces.
	marks, links []string
	// ctx ends when a program of the test has died, which is then the cause.
	ctx  context.Context
	fail context.CancelCauseFunc
	// logf logs what happened, and the time since the test began.
	logf func(format string, args ...any)
}

// newFixture skips the test if it is not enabled, and fails it if a check finds something missing. At the end of the
// test, after everything else, it fails the test for what is left on the machine.
func newFixture(t *testing.T, checks ...func() error) *fixture {
	t.Helper()
	if os.Getenv(enabled) == "" {
		t.Skip("servers that boot, or that a real Ironic installs: run `make e2e-metal` as root; " +
			"it unpacks Ironic and the disk of a server from Debian's packages into bin/")
	}
	var errs []error
	for _, check := range checks {
		errs = append(errs, check())
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("this cannot run; `make e2e-metal` builds what can be built:\n%v", err)
	}
	w := &fixture{dir: t.TempDir()}
	started := time.Now()
	w.logf = func(format string, args ...any) {
		// The time of a line is more useful here than its place in the code.
		_, _ = fmt.Fprintf(t.Output(), "%6.1fs  "+format+"\n", append([]any{time.Since(started).Seconds()}, args...)...)
	}
	w.ctx, w.fail = context.WithCancelCause(t.Context())
	w.marks = []string{w.dir}
	before := readState(t)
	t.Cleanup(func() { w.checkGone(t, before) })
	return w
}

// programs checks that programs are in bin.
func programs(names ...string) func() error {
	return func() error {
		var errs []error
		for _, name := range names {
			_, err := cluster.Binaries{bin}.Find(name)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
}

// missingServer returns an error if servers cannot boot as containers.
func missingServer() error {
	return errors.Join(programs(container)(), server.Check(server.Options{Server: anyServer()}))
}

// anyServer is a server for the check. The loopback interface stands for the bridge, which does not exist yet.
func anyServer() boot.Server {
	return boot.Server{Dir: bin, Image: filepath.Join(bin, "server-image"), Bridge: "lo"}
}

// ipv4Network has this machine's address in a network of servers. It depends on the process ID, so that two runs can
// share a machine.
func ipv4Network() netip.Prefix {
	id := os.Getpid() % (16 << 8)
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(208 + id>>8), byte(id), 1}), 24)
}

// startNetwork makes the network of the servers, with this machine at the address.
func (w *fixture) startNetwork(t *testing.T, address netip.Prefix) {
	t.Helper()
	var err error
	if w.network, err = network.New(fmt.Sprintf("metal%d", os.Getpid()), address); err != nil {
		t.Fatal(err)
	}
	w.links = append(w.links, w.network.Name)
	t.Cleanup(func() {
		if err := w.network.Close(); err != nil {
			t.Error(err)
		}
	})
}

// addServer makes what a server leaves on the machine known as the test's.
func (w *fixture) addServer(s boot.Server) {
	w.marks, w.links = append(w.marks, s.UUID), append(w.links, s.Link())
}

// until waits until the check returns no error, and fails the test with the last error.
func (w *fixture) until(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	if err := poll.Await(w.ctx, what, check); err != nil {
		t.Fatal(err)
	}
}

// create creates an object once its API server admits it.
func (w *fixture) create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatalf("creating %T %s, %v", object, object.GetName(), err)
	}
}

// showLogs logs the ends of the logs of all programs and servers, if the test has failed.
func (w *fixture) showLogs(t *testing.T) {
	t.Helper()
	if !t.Failed() {
		return
	}
	const last = 30
	for _, pattern := range []string{
		"log/*.log", "servers/*/console.log", "servers/*/disk/upper/var/log/cloud-init-output.log",
	} {
		files, err := filepath.Glob(filepath.Join(w.dir, pattern))
		if err != nil {
			t.Error(err)
		}
		for _, file := range files {
			lines, err := process.LastLines(file, last)
			t.Logf("the last of %s (%v):\n    %s", file, err, strings.Join(lines, "\n    "))
		}
	}
}

// showEvents logs the events of a cluster at the end of the test, if it has failed.
func (w *fixture) showEvents(t *testing.T, name string, c client.Client) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		events := &corev1.EventList{}
		if err := c.List(context.Background(), events); err != nil {
			t.Log(err)
		}
		for i := range events.Items {
			event := &events.Items[i]
			t.Logf("%s: %s %s: %s: %s", name, event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message)
		}
	})
}

func writeFile(t *testing.T, path string, content []byte, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		t.Fatal(err)
	}
}
