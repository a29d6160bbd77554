// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vlan runs examples/network-switch with the servers that it moves. The switch is a virtual machine with the kernel of `make
// server-image`: bridges of the machine's own kernel may have no VLANs. In it, a bridge is the switch, and network namespaces at the
// bridge's ports are the network interfaces of servers, of Ironic, and of other machines of tenants. The switch's own tests run there too,
// also on Open vSwitch.
package vlan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/initramfs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/vlan/guest"
)

// Where things of the switch are in the virtual machine.
const token, certificate, key, ports = "/token", "/tls.crt", "/tls.key", "/ports.yaml"

// Config says what to start.
type Config struct {
	// Dir is where files go. It must be there.
	Dir string
	// Bin has the programs, and the output of `make server-image`.
	Bin string
	// Document is the OpenAPI document of the endpoint.
	Document string
	// ParkingVLAN is that of servers without a tenant.
	ParkingVLAN uint16
	// Namespace of the BareMetalHosts.
	Namespace string
	Stations  []guest.Station
}

// A Lab is a running switch. It must be closed.
type Lab struct {
	// URL of the network endpoint.
	URL string
	// Credentials is a directory for the manager's flag --network-endpoint-credentials.
	Credentials string

	lab, console string
	stop         context.CancelFunc
	ended        chan error
}

// programs are those in bin, and where they are in the virtual machine.
var programs = map[string]string{"switch-lab": "/init", "network-switch": guest.Switch, "network-switch.test": guest.Tests}

// openVSwitch are the programs of Open vSwitch and what they read, in the output of make server-image, by where they are in the virtual
// machine.
var openVSwitch = map[string]string{
	"/usr/bin/ovs-vsctl": "usr/bin/ovs-vsctl", "/usr/bin/ovsdb-tool": "usr/bin/ovsdb-tool", "/usr/bin/ovsdb-server": "usr/sbin/ovsdb-server",
	"/usr/bin/ovs-vswitchd":                    "usr/lib/openvswitch-switch/ovs-vswitchd",
	"/usr/share/openvswitch/vswitch.ovsschema": "usr/share/openvswitch/vswitch.ovsschema",
}

func image(bin string) boot.Server { return boot.Server{Image: filepath.Join(bin, "server-image")} }

// Missing returns an error with what a lab needs and is missing.
func Missing(bin string) error {
	errs := []error{cluster.Binaries{bin}.Missing(slices.Sorted(maps.Keys(programs))...)}
	emulator, _ := image(bin).Tool("usr/bin/qemu-system-x86_64")
	for _, path := range []string{emulator, filepath.Join(bin, "server-image", "rootfs", "vmlinuz")} {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, fmt.Errorf("%s is missing: make it with `make server-image`", path))
		}
	}
	return errors.Join(errs...)
}

// Start begins to boot the virtual machine.
func Start(ctx context.Context, config Config) (*Lab, error) {
	listen, err := freeport.Reserve(2)
	if err != nil {
		return nil, err
	}
	l := &Lab{
		URL: fmt.Sprintf("https://127.0.0.1:%d", listen[0]), Credentials: filepath.Join(config.Dir, "credentials"),
		lab: fmt.Sprintf("http://127.0.0.1:%d", listen[1]), console: filepath.Join(config.Dir, "console.log"), ended: make(chan error, 1),
	}
	files := filepath.Join(config.Dir, "initramfs")
	if err := errors.Join(os.MkdirAll(l.Credentials, 0o700), config.prepare(files, l.Credentials)); err != nil {
		return nil, fmt.Errorf("preparing the virtual machine of the switch, %w", err)
	}
	program, environment := image(config.Bin).Tool("usr/bin/qemu-system-x86_64")
	data, _ := image(config.Bin).Tool("usr/share")
	arguments := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-L", data + "/qemu", "-L", data + "/seabios", "-display", "none", "-serial", "stdio",
		"-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "768",
		"-kernel", filepath.Join(config.Bin, "server-image", "rootfs", "vmlinuz"), "-initrd", files,
		"-append", "console=ttyS0 quiet panic=-1",
		"-netdev", fmt.Sprintf("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:%d-:%d,hostfwd=tcp:127.0.0.1:%d-:%d", listen[0], guest.SwitchPort,
			listen[1], guest.LabPort),
		"-device", "virtio-net-pci,netdev=net,romfile=",
	}
	console, err := os.Create(l.console)
	if err != nil {
		return nil, fmt.Errorf("making the console of the switch, %w", err)
	}
	var running context.Context
	running, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		// The kernel ends the emulator when the thread ends that has started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		command := exec.CommandContext(running, program, arguments...)
		command.Env, command.Stdout, command.Stderr = append(environment, "TMPDIR="+config.Dir), console, console
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := command.Run()
		l.ended <- errors.Join(err, console.Close())
	}()
	return l, nil
}

// Await returns when the switch answers.
func (l *Lab) Await(ctx context.Context) error {
	ctx, stop := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("it did not answer within two minutes"))
	defer stop()
	if err := cluster.AwaitURL(ctx, "the switch", http.DefaultClient, l.lab+"/ready"); err != nil {
		return fmt.Errorf("booting the switch, %w; its console:\n%s", err, l.Console())
	}
	return nil
}

// prepare writes the credentials, and the root file system of the virtual machine.
func (config Config) prepare(path, credentials string) error {
	pem, private, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return err
	}
	const secret = "the token of the lab"
	for name, content := range map[string][]byte{"token": []byte(secret), "ca.crt": pem} {
		if err := os.WriteFile(filepath.Join(credentials, name), content, 0o600); err != nil {
			return err
		}
	}
	var servers strings.Builder
	for _, station := range config.Stations {
		if station.VLAN == 0 {
			fmt.Fprintf(&servers, "%s/%s: [%s]\n", config.Namespace, station.Name, station.Name)
		}
	}
	description, err := json.Marshal(guest.Description{Stations: config.Stations, Switch: []string{
		fmt.Sprintf("--bind-address=:%d", guest.SwitchPort), "--bridge=" + guest.Bridge, fmt.Sprintf("--parking-vlan=%d", config.ParkingVLAN),
		"--ports=" + ports, "--token-file=" + token, "--tls-cert-file=" + certificate, "--tls-private-key-file=" + key,
	}})
	if err != nil {
		return err
	}
	document, err := os.ReadFile(config.Document)
	if err != nil {
		return err
	}
	archive := initramfs.New()
	for name, content := range map[string][]byte{
		token: []byte(secret), certificate: pem, key: private, ports: []byte(servers.String()), guest.File: description,
		"/docs/" + filepath.Base(config.Document): document,
	} {
		archive.Add(name, content)
	}
	for program, name := range programs {
		content, err := os.ReadFile(filepath.Join(config.Bin, program))
		if err != nil {
			return err
		}
		archive.Add(name, content)
	}
	root, tools := filepath.Join(config.Bin, "server-image", "rootfs"), filepath.Join(config.Bin, "server-image", "tools")
	var sources []string
	for name, source := range openVSwitch {
		source = filepath.Join(tools, source)
		content, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		archive.Add(name, content)
		sources = append(sources, source)
	}
	if err := archive.AddLibraries(sources, tools, root); err != nil {
		return err
	}
	if err := archive.AddModules(root, "virtio_pci", "virtio_net", "bridge", "veth", "8021q", "openvswitch"); err != nil {
		return err
	}
	return os.WriteFile(path, archive.End(), 0o600)
}

// Reach has each station ask each other one by each protocol, and returns all answers.
func (l *Lab) Reach(ctx context.Context) ([]guest.Answer, error) {
	content, err := l.get(ctx, "/reach")
	if err != nil {
		return nil, err
	}
	var answers []guest.Answer
	if err := json.Unmarshal(content, &answers); err != nil {
		return nil, fmt.Errorf("reading who reaches whom, %w", err)
	}
	return answers, nil
}

// TestOutput runs the tests of the switch in the virtual machine.
func (l *Lab) TestOutput(ctx context.Context) (string, error) {
	content, err := l.get(ctx, "/tests")
	return string(content), err
}

func (l *Lab) get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.lab+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the lab, %w", err)
	}
	defer func() { _ = response.Body.Close() }() // the body was read completely
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("asking the lab for %s, %s: %s", path, response.Status, content)
	}
	return content, err
}

// Console is what the virtual machine and the switch have written.
func (l *Lab) Console() string {
	content, _ := os.ReadFile(l.console) // it is for people
	return string(content)
}

// Close ends the virtual machine, and everything in it.
func (l *Lab) Close() error {
	l.stop()
	var exit *exec.ExitError
	if err := <-l.ended; err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("ending the switch, %w", err)
	}
	return nil
}
