// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/admin"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/scenario"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
)

// heartbeat is the interval of a deploy agent's heartbeats. Ironic starts its next step at each.
const heartbeat = time.Second

// Rack is the administrator's access to the emulated servers.
type Rack struct {
	// Servers as the scenario describes them, in its order.
	Servers []scenario.Server
	// Admin is the URL of the admin API.
	Admin string
}

// readScenario reads which servers there are.
func (s *Stack) readScenario(context.Context) error {
	described, err := scenario.Load(s.config.Scenario)
	if err != nil {
		return err
	}
	s.Rack = &Rack{Servers: described.Servers}
	return nil
}

// hasIPMI returns whether the rack has servers behind IPMI. A rack elsewhere, which is nil, has none.
func (r *Rack) hasIPMI() bool {
	return r != nil && slices.ContainsFunc(r.Servers, func(s scenario.Server) bool { return s.BMC.Protocol == scenario.IPMI })
}

// startRack starts the rack, and returns when its Redfish BMCs answer.
func (s *Stack) startRack(ctx context.Context) error {
	ports, err := freeport.Reserve(2)
	if err != nil {
		return err
	}
	redfish, administration := fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	s.Rack.Admin = "http://" + administration
	err = s.run(rackName, process.Spec{
		Rank: cluster.RankControllers,
		Args: []string{
			"--scenario=" + s.config.Scenario, "--data-dir=" + filepath.Join(s.config.Dir, "servers"), "--ironic-url=" + s.Ironic.URL,
			"--redfish-bind-address=" + redfish, "--admin-bind-address=" + administration, "--boot-command=" + s.config.BootCommand,
			"--ipmi-sim=" + filepath.Join(s.config.Bin, "ironic", "ipmi_sim"), "--network-boot-url=" + s.Ironic.FilesURL,
			"--heartbeat-interval=" + heartbeat.String(), "--retry-interval=" + heartbeat.String(),
		},
	})
	if err != nil {
		return err
	}
	if err := cluster.AwaitURL(ctx, "the rack", http.DefaultClient, s.Rack.Admin+"/healthz"); err != nil {
		return err
	}
	s.config.Progress("the rack runs: %d servers, BMCs at %s", len(s.Rack.Servers), redfish)
	return nil
}

// Server returns the state of a server.
func (r *Rack) Server(ctx context.Context, name string) (*admin.View, error) {
	view := &admin.View{}
	return view, r.call(ctx, http.MethodGet, name, nil, view)
}

// Break sets a fault of a server.
func (r *Rack) Break(ctx context.Context, name string, fault faults.Fault) error {
	return r.call(ctx, http.MethodPut, name+"/faults/"+string(fault.Kind), fault, nil)
}

// Repair clears all faults of a server.
func (r *Rack) Repair(ctx context.Context, name string) error {
	return r.call(ctx, http.MethodDelete, name+"/faults", nil, nil)
}

func (r *Rack) call(ctx context.Context, method, path string, body, target any) error {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, r.Admin+"/v1/servers/"+path, content)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking the rack, %w", err)
	}
	defer func() { _ = response.Body.Close() }() // the body was read completely
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("asking the rack, %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the rack refuses %s %s, %s: %s", method, path, response.Status, answer)
	}
	if target == nil {
		return nil
	}
	return json.Unmarshal(answer, target)
}

// Register registers a server of the rack with Metal3.
func (s *Stack) Register(ctx context.Context, server scenario.Server, labels map[string]string) error {
	return s.Rack.Register(ctx, s.Client, server, labels)
}

// Register registers a server with the Metal3 of a management cluster, as a platform team does: a Secret with the credentials of
// its BMC, and a BareMetalHost of the same name, which says nothing about the hardware.
func (r *Rack) Register(ctx context.Context, c client.Client, server scenario.Server, labels map[string]string) error {
	view, err := r.Server(ctx, server.Name)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: HostsNamespace, Name: server.Name + "-bmc"},
		Data:       map[string][]byte{"username": []byte(server.BMC.Username), "password": []byte(server.BMC.Password)},
	}
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: HostsNamespace, Name: server.Name, Labels: labels}}
	host.Spec.BMC = bmov1alpha1.BMCDetails{Address: "redfish-virtualmedia+" + view.URL, CredentialsName: secret.Name}
	if server.BMC.Protocol == scenario.IPMI {
		host.Spec.BMC.Address = view.URL
	}
	if server.Machine {
		// The firmware of virtual machines is SeaBIOS.
		host.Spec.BootMode = bmov1alpha1.Legacy
	}
	host.Spec.BootMACAddress = view.MACs[0]
	for _, object := range []client.Object{secret, host} {
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("registering server %s, creating %T, %w", server.Name, object, err)
		}
	}
	return nil
}

// Host reads a BareMetalHost.
func (s *Stack) Host(ctx context.Context, name string) (*bmov1alpha1.BareMetalHost, error) {
	host := &bmov1alpha1.BareMetalHost{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: HostsNamespace, Name: name}, host); err != nil {
		return nil, fmt.Errorf("reading host %s, %w", name, err)
	}
	return host, nil
}
