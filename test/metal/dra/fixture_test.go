// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/dradriver"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/server"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
)

const (
	// hostsNamespace is where the manager looks for BareMetalHosts. There are none.
	hostsNamespace = "metal3-system"
	// waitTimeout bounds each wait. It is far longer than any step takes, so that a busy machine fails no test.
	waitTimeout = 4 * time.Minute
)

// fixture is a host cluster, with the administrator's access to it.
type fixture struct {
	*controlplane.Cluster
	client  client.Client
	kube    kubernetes.Interface
	network *network.Bridge
	// bin is the directory that has the programs, and dir the one where everything goes.
	bin, dir   string
	binaries   controlplane.Binaries
	supervisor *process.Supervisor
	// ctx ends when a process has died, which is then the cause.
	ctx  context.Context
	fail context.CancelCauseFunc
	// id of the server.
	id   string
	logf func(format string, args ...any)
}

// newFixture starts a host cluster with our manager and our webhook, and stops everything at the end of the test.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	if os.Getenv("E2E_METAL") == "" {
		t.Skip("pods with devices on a server that boots: run `make e2e-metal` as root")
	}
	bin, err := filepath.Abs(filepath.Join("..", "..", "..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	w := &fixture{bin: bin, dir: t.TempDir(), binaries: controlplane.Binaries{bin}, id: uuid.NewString(), logf: stopwatch(t)}
	if err := w.missing(); err != nil {
		t.Fatalf("this cannot run; `make e2e-metal` builds what is missing:\n%v", err)
	}
	w.ctx, w.fail = context.WithCancelCause(t.Context())
	w.checkGone(t)
	// Name and address depend on the process ID, so that two runs can share a machine.
	address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 215, byte(os.Getpid()), 1}), 24)
	if w.network, err = network.New("dra"+interfaceSuffix(), address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.network.Close(); err != nil {
			t.Error(err)
		}
	})
	w.supervisor, err = process.NewSupervisor(process.Options{Dir: w.dir, OnExit: func(exit process.Exit) {
		lines, _ := process.LastLines(exit.LogFile, 40) // for the message only
		w.fail(fmt.Errorf("%s died: %s\n%s", exit.Name, exit.Reason, strings.Join(lines, "\n")))
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.supervisor.Close)
	// Before anything is stopped, so that the state is that of the failure.
	t.Cleanup(func() {
		if t.Failed() {
			w.diagnose(t)
		}
	})
	w.startCluster(t)
	return w
}

// missing returns what the test needs and is missing.
func (w *fixture) missing() error {
	// The loopback interface stands for the bridge, which does not exist yet.
	errs := []error{server.Check(server.Options{Server: boot.Server{Dir: w.dir, Image: w.server().Image, Bridge: "lo"}})}
	for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubeadm", "helm", vclusterName,
		dradriver.Program, "manager", "provider", "webhook", "boot-server"} {
		_, err := w.binaries.Find(program)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// stopwatch returns a function that logs what happened, and the time since the start.
func stopwatch(t *testing.T) func(format string, args ...any) {
	start := time.Now()
	return func(format string, args ...any) {
		t.Helper()
		t.Logf("%6.1fs  %s", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
}

// startEtcd starts an etcd that listens on the machine's address of the network.
func (w *fixture) startEtcd(t *testing.T, name string) *controlplane.Etcd {
	t.Helper()
	ports := freePorts(t, 2)
	etcd, err := controlplane.StartEtcd(t.Context(), controlplane.EtcdConfig{
		Name: name, Dir: filepath.Join(w.dir, name), Binaries: w.binaries, Supervisor: w.supervisor, Clock: clock.RealClock{},
		Address: w.network.Address.Addr().String(), ClientPort: ports[0], PeerPort: ports[1],
	})
	if err != nil {
		t.Fatal(err)
	}
	return etcd
}

func freePorts(t *testing.T, count int) []int {
	t.Helper()
	ports, err := controlplane.FreePorts(count)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

func (w *fixture) startCluster(t *testing.T) {
	t.Helper()
	var err error
	w.Cluster, err = controlplane.New(controlplane.Config{
		Name: "host", Dir: filepath.Join(w.dir, "host"), Kubeconfig: filepath.Join(w.dir, "host.kubeconfig"), Binaries: w.binaries,
		Supervisor: w.supervisor, Clock: clock.RealClock{}, Etcd: w.startEtcd(t, "etcd-host"),
		Address: w.network.Address.Addr().String(), Port: freePorts(t, 1)[0], Nodes: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, start := range []func(context.Context) error{w.StartAPIServer, w.StartControllers, w.EnableJoin} {
		if err := start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if w.client, err = client.New(w.REST, client.Options{Scheme: env.Scheme()}); err != nil {
		t.Fatal(err)
	}
	if w.kube, err = kubernetes.NewForConfig(w.REST); err != nil {
		t.Fatal(err)
	}
	w.printEvents(t, "host", w.client)
	w.logf("the host's control plane is ready at %s", w.Server)
	if err := sandbox.PrepareManagement(t.Context(), w.client, w.binaries, hostsNamespace); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := sandbox.GrantManager(t.Context(), w.Cluster, w.client, hostsNamespace, w.dir)
	if err != nil {
		t.Fatal(err)
	}
	// Providers write nothing until the manager has identified the tenants' clusters.
	w.startOurs(t, "manager", "manager", "--kubeconfig="+kubeconfig, "--leader-elect=false", "--metrics-bind-address=0")
	w.startWebhook(t)
}

func (w *fixture) startWebhook(t *testing.T) {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
	kubeconfig, err := sandbox.GrantWebhook(t.Context(), w.Cluster, w.client, address, hostsNamespace, w.dir)
	if err != nil {
		t.Fatal(err)
	}
	w.startOurs(t, "webhook", "webhook", "--kubeconfig="+kubeconfig, "--webhook-bind-address="+address, "--cert-names=127.0.0.1",
		"--namespace="+hostsNamespace, "--shutdown-delay=0", "--metrics-bind-address=0")
}

// startOurs starts one of our programs as a process of that name, and returns when it is ready.
func (w *fixture) startOurs(t *testing.T, name, program string, args ...string) {
	t.Helper()
	path, err := w.binaries.Find(program)
	if err != nil {
		t.Fatal(err)
	}
	health := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
	err = w.supervisor.Start(process.Spec{
		Name: name, Path: path, Rank: controlplane.RankClients + 1, Args: append(args, "--health-probe-bind-address="+health),
		Env: []string{"HOME=" + w.dir},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.until(t, name+" to be ready", func(ctx context.Context) error {
		return controlplane.AwaitURL(ctx, name, http.DefaultClient, "http://"+health+"/readyz")
	})
	w.logf("our %s is ready", name)
}

// until waits until the check returns no error, and fails the test with the last error.
func (w *fixture) until(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	ctx, done := context.WithTimeoutCause(w.ctx, waitTimeout, fmt.Errorf("timed out after %s", waitTimeout))
	defer done()
	if err := controlplane.Await(ctx, what, check); err != nil {
		t.Fatal(err)
	}
}

// diagnose prints the ends of all logs.
func (w *fixture) diagnose(t *testing.T) {
	t.Helper()
	for _, info := range w.supervisor.List() {
		lines, err := process.LastLines(info.LogFile, 15)
		t.Logf("%s, %s (%v):\n%s", info.Name, info.State, err, strings.Join(lines, "\n"))
	}
	lines, err := process.LastLines(filepath.Join(w.server().Dir, "disk/upper/var/log/cloud-init-output.log"), 15)
	t.Logf("cloud-init (%v):\n%s", err, strings.Join(lines, "\n"))
}

// printEvents prints the events of a cluster at the end of a test that has failed.
func (w *fixture) printEvents(t *testing.T, name string, c client.Client) {
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
