// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/vcluster"
)

const (
	// vclusterPort is the port on loopback that each vCluster listens on, whatever it is told: one runs in a network namespace.
	vclusterPort = 10099
	// vclusterData is where vCluster looks for the data of an older one and for processes to kill, whatever it is told.
	vclusterData = "/data"
	// vclusterTurn is how long the vCluster of another test is waited for.
	vclusterTurn = 15 * time.Minute
	// otherUser is the user, and the group, that own no files.
	otherUser = 65534
)

// StartVCluster starts the real vCluster's syncer for a tenant, beside which the tenant's control plane runs as it is. It has
// the rights that vCluster's chart gives it, and is ready when it returns. One vCluster runs in a network namespace at a
// time: it is waited for that of another process, and an Environment can have one.
func (t *Tenant) StartVCluster(ctx context.Context) error {
	w := t.environment
	if _, err := os.Stat(vclusterData); err == nil {
		return fmt.Errorf("%s exists: vCluster would take it for its own, remove what it finds there and kill processes; move it away",
			vclusterData)
	}
	if err := w.takeVClusterPort(ctx); err != nil {
		return err
	}
	ports, err := freeport.Reserve(1)
	if err != nil {
		return err
	}
	v := &syncer{tenant: t, dir: filepath.Join(w.config.Dir, t.Name+"-vcluster"), port: ports[0]}
	t.syncer = v
	if err := v.install(ctx); err != nil {
		return err
	}
	if err := v.writeKubeconfig(ctx); err != nil {
		return err
	}
	if err := vcluster.CreateDNS(ctx, t.Client); err != nil {
		return err
	}
	if err := v.start(); err != nil {
		return err
	}
	err = poll.Await(ctx, "vCluster "+t.Name+" writes its kubeconfig", func(ctx context.Context) error {
		return w.Host.Client.Get(ctx, client.ObjectKey{Namespace: t.Name, Name: "vc-" + t.Name}, &corev1.Secret{})
	})
	if err != nil {
		return fmt.Errorf("%w; the last lines of its log:\n%s", err, w.Log(t.VClusterProcess(), 40))
	}
	return nil
}

// TranslateClaims starts the tenant's vCluster again with the settings with which it translates the claims of pods, or without
// them. With them the tenant has no resourceclaim controller of its own, as in vCluster's own control plane.
func (t *Tenant) TranslateClaims(ctx context.Context, enabled bool) error {
	v, processes := t.syncer, t.environment.supervisor
	config, err := vcluster.Upgrade(ctx, v.root, v.helm, t.environment.Host.Client, t.Name, v.values(enabled))
	if err != nil {
		return err
	}
	controller := processes.StartAgain
	if enabled {
		controller = processes.Stop
	}
	return errors.Join(processes.Stop(t.VClusterProcess()), controller(t.claimController()), v.write("config.yaml", config),
		processes.StartAgain(t.VClusterProcess()))
}

// VClusterProcess is the name of the process of the tenant's vCluster, for Environment.Log and Environment.Processes.
func (t *Tenant) VClusterProcess() string { return t.Name + "-vcluster" }

// takeVClusterPort waits until no other process has a vCluster in this network namespace. An abstract socket is bound to the
// network namespace, as the port is, and goes with the process that has it.
func (w *Environment) takeVClusterPort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, vclusterTurn)
	defer cancel()
	var lock net.Listener
	reported := false
	err := cluster.Await(ctx, fmt.Sprintf("port %d, which each vCluster needs, and another one has", vclusterPort),
		func(ctx context.Context) error {
			var err error
			if lock == nil {
				lock, err = (&net.ListenConfig{}).Listen(ctx, "unix", fmt.Sprintf("@karpenter-metal3-vcluster-%d", vclusterPort))
			}
			if err == nil {
				err = listens(vclusterPort)
			}
			if err != nil && !reported {
				fmt.Fprintf(os.Stderr, "waiting for another vCluster on this machine to end: %v\n", err)
				reported = true
			}
			return err
		})
	if lock != nil {
		w.closers = append(w.closers, lock)
	}
	return err
}

// listens returns an error if the port on loopback is not free.
func listens(port int) error {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	return listener.Close()
}

// syncer is the files of one vCluster.
type syncer struct {
	tenant *Tenant
	dir    string
	// port is that of its API server.
	port int
	// root is the repository's, and helm the program.
	root, helm string
}

// install makes on the host what vCluster's chart makes there, but for the workload, and writes the configuration file
// that the workload would have.
func (v *syncer) install(ctx context.Context) error {
	w := v.tenant.environment
	files := map[string]string{
		"etcd-ca.crt": w.Host.Etcd.CAFile, "etcd-client.crt": w.Host.Etcd.CertFile, "etcd-client.key": w.Host.Etcd.CertKey,
		"tenant-ca.crt":     filepath.Join(w.config.Dir, v.tenant.Name, "pki", "ca.crt"),
		"tenant-ca.key":     filepath.Join(w.config.Dir, v.tenant.Name, "pki", "ca.key"),
		"tenant.kubeconfig": v.tenant.Kubeconfig,
	}
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return fmt.Errorf("making the directory of vCluster, %w", err)
	}
	for name, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading a file for vCluster, %w", err)
		}
		if err := v.write(name, content); err != nil {
			return err
		}
	}
	var err error
	if v.helm, err = w.config.Binaries.Find("helm"); err != nil {
		return err
	}
	if v.root, err = env.RepositoryRoot(); err != nil {
		return err
	}
	config, err := vcluster.Install(ctx, v.root, v.helm, w.Host.Client, v.tenant.Name, v.values(false))
	if err != nil {
		return err
	}
	return v.write("config.yaml", config)
}

// values are those of the chart. With translated, vCluster translates the claims of pods; it copies none, which its Pro images do.
func (v *syncer) values(translated bool) map[string]any {
	etcd, enabled := v.tenant.environment.Host.Etcd.URL, map[string]any{"enabled": translated}
	return map[string]any{
		"sync": map[string]any{"toHost": map[string]any{"resourceClaims": enabled, "resourceClaimTemplates": enabled}},
		"controlPlane": map[string]any{
			"distro":       map[string]any{"k8s": map[string]any{"enabled": true, "apiServer": vcluster.Off, "controllerManager": vcluster.Off}},
			"backingStore": vcluster.ExternalEtcd(etcd, v.path("etcd-ca.crt"), v.path("etcd-client.crt"), v.path("etcd-client.key")),
			"coredns":      vcluster.Off,
			"proxy":        map[string]any{"port": v.port, "bindAddress": "127.0.0.1"},
		},
		"experimental": map[string]any{"virtualClusterKubeConfig": map[string]any{
			"kubeConfig": v.path("tenant.kubeconfig"), "serverCAKey": v.path("tenant-ca.key"), "serverCACert": v.path("tenant-ca.crt"),
			"clientCACert": v.path("tenant-ca.crt"), "requestHeaderCACert": v.path("tenant-ca.crt"),
		}},
	}
}

// write writes a file. One that exists keeps its owner.
func (v *syncer) write(name string, content []byte) error {
	if err := os.WriteFile(v.path(name), content, 0o600); err != nil {
		return fmt.Errorf("writing a file for vCluster, %w", err)
	}
	return nil
}

// writeKubeconfig writes the access of vCluster to the host: a token of the chart's ServiceAccount.
func (v *syncer) writeKubeconfig(ctx context.Context) error {
	w := v.tenant.environment
	kubeconfig, err := vcluster.TokenKubeconfig(ctx, w.Host.Client, w.Host.Server, w.Host.CertificateAuthority(), v.tenant.Name,
		"vc-"+v.tenant.Name)
	if err != nil {
		return err
	}
	return v.write("host.kubeconfig", kubeconfig)
}

// start starts the process. As root, vCluster would write /root/.kube/config and make /data, so then it runs as a user that
// can write its own directory alone.
func (v *syncer) start() error {
	w := v.tenant.environment
	path, err := w.config.Binaries.Find("vcluster")
	if err != nil {
		return err
	}
	spec := process.Spec{
		Name: v.tenant.VClusterProcess(), Path: path, Rank: cluster.RankClients + 1, Restart: true,
		Args: []string{"start", "--config", v.path("config.yaml")},
		Env:  append(vcluster.Environment(v.tenant.Name, v.path("host.kubeconfig"), v.dir, "127.0.0.1"), "TMPDIR="+v.dir),
	}
	if os.Geteuid() == 0 {
		spec.Credential = &syscall.Credential{Uid: otherUser, Gid: otherUser}
		spec.Path = v.path("vcluster")
		if err := v.give(path); err != nil {
			return fmt.Errorf("giving vCluster's files to another user, %w", err)
		}
	}
	return w.supervisor.Start(spec)
}

// give gives the directory, with a copy of the program, to the user that vCluster runs as. That user may not read the
// directory that the program is in.
func (v *syncer) give(program string) error {
	if err := os.Chmod(v.tenant.environment.config.Dir, 0o711); err != nil {
		return err
	}
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(v.path("vcluster"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	entries, err := os.ReadDir(v.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.Chown(v.path(entry.Name()), otherUser, otherUser); err != nil {
			return err
		}
	}
	return os.Chown(v.dir, otherUser, otherUser)
}

func (v *syncer) path(name string) string { return filepath.Join(v.dir, name) }
