// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"k8s.io/client-go/kubernetes"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

const (
	serverMAC = "52:54:00:6e:1f:0d"
	nodeName  = "gpu-server-1"
)

// clusterFixture is a server that can be booted, and a control plane that it can join.
type clusterFixture struct {
	*fixture
	*cluster.Cluster
	kube       kubernetes.Interface
	supervisor *process.Supervisor
	server     boot.Server
}

// newClusterFixture makes the network, in which this machine has the address, and a server. It starts nothing.
func newClusterFixture(t *testing.T, address netip.Prefix, checks ...func() error) *clusterFixture {
	t.Helper()
	w := &clusterFixture{fixture: newFixture(t, append(checks, missingServer)...)}
	w.startNetwork(t, address)
	w.server = boot.Server{
		Name: "server-1", UUID: uuid.NewString(), MAC: serverMAC, Dir: filepath.Join(w.dir, "servers", "server-1"),
		Image: filepath.Join(bin, "server-image"), Bridge: w.network.Name,
	}
	w.addServer(w.server)
	var err error
	w.supervisor, err = process.NewSupervisor(process.Options{
		Dir: w.dir, OnExit: func(exit process.Exit) { w.fail(exit) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.supervisor.Close)
	t.Cleanup(func() { w.showLogs(t) })
	return w
}

// startCluster starts a control plane on the machine's address of the network. The options say what it has beside
// nodes.
func (w *clusterFixture) startCluster(t *testing.T, options cluster.Options) {
	t.Helper()
	options.Dir, options.Binaries, options.Processes = w.dir, cluster.Binaries{bin}, w.supervisor
	options.Name, options.Address, options.Nodes = cmp.Or(options.Name, "tenant"), w.network.Address.Addr().String(), true
	ctx, done := poll.WithPatience(w.ctx)
	defer done()
	var err error
	if w.Cluster, err = cluster.Start(ctx, options); err != nil {
		t.Fatal(err)
	}
	if w.kube, err = kubernetes.NewForConfig(w.REST); err != nil {
		t.Fatal(err)
	}
	w.showEvents(t, options.Name, w.Client)
	w.logf("the control plane is ready at %s", w.Cluster.Server)
}

// endpoint of the API server, host:port.
func (w *clusterFixture) endpoint() string { return strings.TrimPrefix(w.Cluster.Server, "https://") }

// install writes the files of a deployment to the directory of the server: an image, and the config drive. No network
// data give the server one address.
func (w *clusterFixture) install(t *testing.T, userData, networkData []byte) {
	t.Helper()
	if networkData == nil {
		var err error
		networkData, err = bootstrap.NetworkData(addressOf(w.network, 9), serverMAC)
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, content := range map[string]string{
		w.server.InstalledImage(): image, w.server.Devices(): `{"nvidia.com/gpu": ["GPU-0", "GPU-1"]}`,
		filepath.Join(w.server.Dir, "hardware.json"): `{"cpus": 96, "memoryMiB": 786432}`,
	} {
		writeFile(t, path, []byte(content), 0o600)
	}
	if err := w.server.WriteConfigDrive(networkData, userData); err != nil {
		t.Fatal(err)
	}
}

// addressOf is the address of a server in a network, whose gateway this machine is.
func addressOf(bridge *network.Bridge, server int) *plan.Address {
	return &plan.Address{Allocation: ipam.Allocation{Address: bridge.Server(server), Gateway: bridge.Address.Addr()}}
}

// power is a server that was turned on.
type power struct {
	command *exec.Cmd
	ended   chan error
	// cut is whether the test has cut it.
	cut atomic.Bool
}

// turnOn boots the server as a rack does: by the boot command, in a process group of its own. If the server ends before
// its power is cut, the waits of the test end.
func (w *clusterFixture) turnOn(t *testing.T, program string, flags ...string) *power {
	t.Helper()
	command := exec.Command(filepath.Join(bin, program),
		append([]string{"--image", w.server.Image, "--bridge", w.server.Bridge}, flags...)...)
	command.Env = append(os.Environ(), "SERVER_NAME="+w.server.Name, "SERVER_UUID="+w.server.UUID,
		"SERVER_MAC="+w.server.MAC, "SERVER_DIR="+w.server.Dir)
	console, err := os.OpenFile(filepath.Join(w.server.Dir, "console.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = console, console
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p, started := &power{command: command, ended: make(chan error, 1)}, make(chan error, 1)
	go func() {
		// The server ends with the thread that has started it, and so with this process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		if started <- err; err != nil {
			return
		}
		err = command.Wait()
		_ = console.Close() // the file is complete
		if !p.cut.Load() {
			w.fail(fmt.Errorf("the server has ended by itself: %v", err))
		}
		p.ended <- err
		close(p.ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.signal(syscall.SIGKILL) }) // it may have ended
	w.logf("the server is turned on")
	return p
}

// signal sends a signal to all processes of the server's process group.
func (p *power) signal(signal syscall.Signal) error {
	p.cut.Store(true)
	return syscall.Kill(-p.command.Process.Pid, signal)
}

// turnOff cuts the server's power, as a rack does. Nothing but its disk may be left.
func (w *clusterFixture) turnOff(t *testing.T, server *power) {
	t.Helper()
	if err := server.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := poll.Receive(t, "the server to be off", server.ended); err != nil {
		t.Fatalf("the server has ended badly: %v", err)
	}
	if left := w.traces(t); len(left) > 0 {
		t.Errorf("the server is off, and has left %v", left)
	}
	if _, err := os.Stat(filepath.Join(w.server.Dir, "run")); !os.IsNotExist(err) {
		t.Errorf("the run directory of the server is left, or cannot be read: %v", err)
	}
	w.logf("the server is off")
}

// traces are what there is of the server on the machine.
func (w *clusterFixture) traces(t *testing.T) map[string][]string {
	t.Helper()
	return find(t, []string{w.server.UUID, w.server.Dir}, []string{w.server.Link()})
}
