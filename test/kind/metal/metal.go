// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metal runs what stands beside kind clusters: for a management cluster Metal3, in one container, and in another a rack of
// emulated servers, which boot as containers in the network of kind. Both containers are of one local image, a Debian with Python
// for Ironic; the programs are mounted from bin/.
package metal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplane "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/docker"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/ironic"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

const (
	// Bridge is the bridge of the rack's container that servers are plugged into.
	Bridge = "metal"

	// Paths in the containers.
	programs  = "/programs"
	rackFiles = "/rack"
	data      = "/var/lib/metal"
	readyFile = "/run/ready.json"

	// interval between two looks at what is awaited.
	interval = 250 * time.Millisecond
	// logTail is how many lines of a container's log are in an error.
	logTail = 20
)

// Config says what to start.
type Config struct {
	// Cluster is the name of the management cluster. The containers are named after it.
	Cluster string
	// Network is the Docker network of the cluster; empty means kind's usual one.
	Network string
	// Kubeconfig is an administrator's of the management cluster, as containers of the network use it ("kind get kubeconfig --internal").
	Kubeconfig []byte
	// Client is the same administrator's, from here.
	Client client.Client
	// Servers of the rack, each of which is registered as a BareMetalHost. Without any there is no rack.
	Servers []fleet.Server
	// Bin is the directory of the programs: bin/ of a checkout.
	Bin string
	// Dir is a directory for the files that the containers are given. It is made.
	Dir string
	// ContainerImages is a directory with archives of container images that servers import when they boot; may be empty.
	ContainerImages string
	// Progress is called when a part is ready; may be nil.
	Progress func(format string, args ...any)
}

// Metal is what runs.
type Metal struct {
	// OSImage is a disk image that servers can install. They boot bin/server-image, whatever they install.
	OSImage stack.Image
	// Ironic is the URL of Ironic for containers of the network.
	Ironic string
	// Rack is access to the rack from here; nil without servers. Its admin API has no authentication, and is published on loopback only.
	Rack *stack.Rack
	// Containers are the names of the containers.
	Containers []string

	config Config
}

// Metal3Container is the name of the container with Ironic and baremetal-operator.
func Metal3Container(cluster string) string { return cluster + "-metal3" }

// RackContainer is the name of the container with the rack.
func RackContainer(cluster string) string { return cluster + "-rack" }

// Missing returns an error with what is missing in bin, and how to get it. It starts nothing.
func Missing(bin string) error {
	errs := []error{ironic.Check(filepath.Join(bin, "ironic"))}
	if _, err := os.Stat(filepath.Join(bin, "server-image", ".layer")); err != nil {
		errs = append(errs, fmt.Errorf("there is no server image: run `make server-image` (%w)", err))
	}
	return errors.Join(append(errs, controlplane.Binaries{bin}.Missing("metal-host", "rack", "boot-server", "baremetal-operator"))...)
}

// Up starts the containers, and returns when Ironic, the operator and the BMCs work and all servers are registered. Their inspection
// has then begun: AwaitAvailable waits for its end. Containers of an earlier run are removed first. On an error no container is left,
// and the error ends with the end of the failed container's log.
func Up(ctx context.Context, config Config) (*Metal, error) {
	config.Network = cmp.Or(config.Network, "kind")
	if config.Progress == nil {
		config.Progress = func(string, ...any) {}
	}
	if err := Missing(config.Bin); err != nil {
		return nil, err
	}
	for _, path := range []*string{&config.Bin, &config.Dir} {
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
	}
	m := &Metal{config: config, Containers: []string{Metal3Container(config.Cluster)}}
	if len(config.Servers) > 0 {
		m.Containers = append(m.Containers, RackContainer(config.Cluster))
	}
	if err := m.up(ctx); err != nil {
		return nil, errors.Join(err, Down(context.WithoutCancel(ctx), config.Cluster))
	}
	return m, nil
}

func (m *Metal) up(ctx context.Context) error {
	image, err := makeImage(ctx, m.config.Bin, m.config.Progress)
	if err != nil {
		return err
	}
	if err := Down(ctx, m.config.Cluster); err != nil {
		return err
	}
	described, err := m.config.write()
	if err != nil {
		return err
	}
	if err := m.startMetal3(ctx, image); err != nil {
		return err
	}
	if len(m.config.Servers) > 0 {
		if err := m.startRack(ctx, image); err != nil {
			return err
		}
	}
	if err := m.awaitMetal3(ctx); err != nil || m.Rack == nil {
		return err
	}
	m.Rack.Servers = described.Servers
	if err := m.awaitRack(ctx); err != nil {
		return err
	}
	for i, server := range m.Rack.Servers {
		if err := m.Rack.Register(ctx, m.config.Client, server, m.config.Servers[i].Labels); err != nil {
			return err
		}
	}
	m.config.Progress("%d servers are registered", len(m.Rack.Servers))
	return nil
}

// start starts a container, with flags of "docker run" and a command of metal-host.
func (m *Metal) start(ctx context.Context, name, image string, flags, command []string) error {
	args := append([]string{
		"run", "--detach", "--name", name, "--hostname", name, "--network", m.config.Network,
		// A database, and the upper layers of overlays: neither works on the overlay of a container.
		"--volume", data, "--tmpfs", "/tmp", "--tmpfs", "/run",
		"--volume", m.config.Bin + ":" + programs + ":ro", "--entrypoint", programs + "/metal-host",
	}, flags...)
	if _, err := docker.Run(ctx, append(append(args, image), command...)...); err != nil {
		return fmt.Errorf("starting container %s, %w", name, err)
	}
	return nil
}

func (m *Metal) startMetal3(ctx context.Context, image string) error {
	name := m.Containers[0]
	m.Ironic = "http://" + name + ":6385"
	return m.start(ctx, name, image, []string{
		// SELinux does not let a container read the files of a user, as bin/ is.
		"--security-opt", "label=disable", "--volume", m.config.kubeconfig() + ":/kubeconfig:ro",
	}, []string{
		"metal3", "--kubeconfig", "/kubeconfig", "--bin", programs, "--dir", data, "--host", name, "--ready", readyFile,
	})
}

func (m *Metal) startRack(ctx context.Context, image string) error {
	name := m.Containers[1]
	flags := []string{
		// For the mounts, control groups and interfaces of servers.
		"--privileged", "--cgroupns", "private", "--publish", "127.0.0.1::8090", "--volume", m.config.rackDir() + ":" + rackFiles + ":ro",
	}
	if m.config.ContainerImages != "" {
		flags = append(flags, "--volume", m.config.ContainerImages+":/container-images:ro", "--env", "SERVER_CONTAINER_IMAGES=/container-images")
	}
	if err := m.start(ctx, name, image, flags, []string{
		"rack", programs + "/rack", "--scenario", rackFiles + "/rack.yaml", "--data-dir", data, "--ironic-url", m.Ironic,
		"--redfish-bind-address", ":8000", "--admin-bind-address", ":8090", "--boot-command", rackFiles + "/boot",
		"--heartbeat-interval", "1s", "--retry-interval", "1s",
	}); err != nil {
		return err
	}
	published, err := docker.Run(ctx, "port", name, "8090/tcp")
	if err != nil {
		return fmt.Errorf("finding the port of the rack's admin API, %w: %s", err, docker.Tail(ctx, name, logTail))
	}
	m.Rack = &stack.Rack{Admin: "http://" + strings.Fields(published)[0]}
	return nil
}

func (m *Metal) awaitMetal3(ctx context.Context) error {
	name := m.Containers[0]
	err := m.await(ctx, name, "Ironic and baremetal-operator", func(ctx context.Context) error {
		content, err := docker.Run(ctx, "exec", name, "cat", readyFile)
		if err != nil {
			return err
		}
		return json.Unmarshal([]byte(content), &m.OSImage)
	})
	if err == nil {
		m.config.Progress("Ironic and baremetal-operator work in container %s", name)
	}
	return err
}

func (m *Metal) awaitRack(ctx context.Context) error {
	name := m.Containers[1]
	err := m.await(ctx, name, "the rack", func(ctx context.Context) error {
		return controlplane.CheckURL(ctx, http.DefaultClient, m.Rack.Admin+"/healthz")
	})
	if err == nil {
		m.config.Progress("the rack has %d servers in container %s; its admin API is %s", len(m.Rack.Servers), name, m.Rack.Admin)
	}
	return err
}

// await waits until a container works. It fails when the container ends, or at the end of the context.
func (m *Metal) await(ctx context.Context, container, what string, works func(context.Context) error) error {
	for {
		err := works(ctx)
		if err == nil {
			return nil
		}
		running, failed := docker.IsRunning(ctx, container)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for %s in container %s, %w (%w); its log ends with:\n%s", what, container, context.Cause(ctx), err,
				docker.Tail(context.WithoutCancel(ctx), container, logTail))
		case failed != nil:
			return failed
		case !running:
			return fmt.Errorf("container %s has ended before %s worked; its log ends with:\n%s", container, what,
				docker.Tail(ctx, container, logTail))
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}

// AwaitAvailable waits until all servers have been inspected and can be provisioned.
func (m *Metal) AwaitAvailable(ctx context.Context) error {
	return m.await(ctx, m.Containers[0], "the inspection of all servers", func(ctx context.Context) error {
		hosts := &bmov1alpha1.BareMetalHostList{}
		if err := m.config.Client.List(ctx, hosts, client.InNamespace(stack.HostsNamespace)); err != nil {
			return err
		}
		states := map[string]string{}
		for _, host := range hosts.Items {
			states[host.Name] = strings.TrimSpace(string(host.Status.Provisioning.State) + " " + host.Status.ErrorMessage)
		}
		var missing []string
		for _, server := range m.config.Servers {
			if state := states[server.Name]; state != string(bmov1alpha1.StateAvailable) {
				missing = append(missing, fmt.Sprintf("%s is %q", server.Name, state))
			}
		}
		if missing != nil {
			return errors.New(strings.Join(missing, ", "))
		}
		return nil
	})
}

// Down removes the containers beside a management cluster, with their data. It is no error if there are none. The BareMetalHosts stay.
func Down(ctx context.Context, cluster string) error {
	for _, name := range []string{Metal3Container(cluster), RackContainer(cluster)} {
		if _, err := docker.Run(ctx, "rm", "--force", "--volumes", name); err != nil && !strings.Contains(err.Error(), "No such container") {
			return fmt.Errorf("removing container %s, %w", name, err)
		}
	}
	return nil
}
