// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package deployagent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

// microversion of Ironic's API with agent tokens and agent_verify_ca, the last one that concerned agents.
const microversion = "1.68"

// hiddenToken is in Ironic's response if the agent got its token on the medium.
const hiddenToken = "******"

// lookUp asks Ironic for the node of this server and returns its UUID.
func (a *Agent) lookUp(ctx context.Context) (string, error) {
	var answer struct {
		Node struct {
			UUID string `json:"uuid"`
		} `json:"node"`
		Config struct {
			AgentToken string `json:"agent_token"`
		} `json:"config"`
	}
	query := url.Values{"addresses": {strings.Join(a.options.Server.Hardware.MACs(), ",")}}
	if err := a.ask(ctx, http.MethodGet, a.url("/v1/lookup?"+query.Encode()), microversion, nil, &answer); err != nil {
		return "", err
	}
	token := answer.Config.AgentToken
	if a.options.Parameters.Token != "" {
		token = a.options.Parameters.Token
	}
	if token == hiddenToken {
		return "", fmt.Errorf("the token of node %s has already been given out by Ironic, and the boot medium has none", answer.Node.UUID)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token = token
	return answer.Node.UUID, nil
}

// addressToward returns the address of this machine from which it reaches a URL. It sends nothing: a UDP socket that is connected has
// the address of its route.
func addressToward(ctx context.Context, to string) (string, error) {
	parsed, err := url.Parse(to)
	if err != nil {
		return "", fmt.Errorf("reading Ironic's URL, %w", err)
	}
	// Any port has the same route.
	connection, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(parsed.Hostname(), cmp.Or(parsed.Port(), "443")))
	if err != nil {
		return "", err
	}
	defer func() { _ = connection.Close() }() // nothing was sent
	return connection.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().String(), nil
}

// heartbeat sends the agent's URL to Ironic.
func (a *Agent) heartbeat(ctx context.Context, node, callback string) error {
	return a.ask(ctx, http.MethodPost, a.url("/v1/heartbeat/"+node), microversion, map[string]string{
		"callback_url": callback, "agent_version": version, "agent_token": a.secret(),
	}, nil)
}

func (a *Agent) secret() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token
}

// inspect sends the inventory to Ironic's inspection. As the real agent does, it names no microversion.
func (a *Agent) inspect(ctx context.Context) error {
	a.setState("sending its inventory")
	return a.ask(ctx, http.MethodPost, a.options.Parameters.InspectionURL, "", a.inventory(), nil)
}

// url returns that of a path of Ironic's API.
func (a *Agent) url(path string) string {
	return strings.TrimSuffix(a.options.Parameters.IronicURL, "/") + path
}

// ask makes a call to Ironic and decodes the response into into, which may be nil.
func (a *Agent) ask(ctx context.Context, method, to, microversion string, body, target any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("writing a request, %w", err)
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, to, reader)
	if err != nil {
		return fmt.Errorf("making a request, %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	if microversion != "" {
		request.Header.Set("X-OpenStack-Ironic-API-Version", microversion)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("reading the response to %s %s, %w", method, to, err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s: %.300s", method, to, response.Status, data)
	}
	if target == nil {
		return nil
	}
	if err := json.Unmarshal(data, target); err != nil {
		return fmt.Errorf("reading the response to %s %s, %w", method, to, err)
	}
	return nil
}

// inventory is the hardware of the server as an operating system on it finds it, in the form in which ironic-python-agent
// sends it to an inspection: its collector default.
func (a *Agent) inventory() map[string]any {
	has := a.options.Server.Hardware
	nics, disks, devices := []map[string]any{}, []map[string]any{}, []map[string]any{}
	bootInterface := ""
	for _, nic := range has.NICs {
		nics = append(nics, map[string]any{
			"name": nic.Name, "mac_address": nic.MAC, "has_carrier": true, "speed_mbps": nic.SpeedGbps * 1000,
		})
		bootInterface = cmp.Or(bootInterface, nic.MAC)
	}
	for _, disk := range has.Disks {
		disks = append(disks, map[string]any{
			"name": disk.Name, "model": disk.Model, "size": disk.Bytes(), "rotational": disk.Kind == inventory.HDD,
		})
	}
	for _, gpu := range has.GPUs {
		for range gpu.Count {
			devices = append(devices, map[string]any{
				"vendor_id": strings.TrimPrefix(gpu.VendorID, "0x"), "product_id": strings.TrimPrefix(gpu.DeviceID, "0x"),
				"class": "030200", // a 3D controller
			})
		}
	}
	sockets, _, threads := has.Count()
	cpu := map[string]any{"count": threads, "socket_count": sockets}
	if len(has.Processors) > 0 {
		cpu["model_name"], cpu["architecture"] = has.Processors[0].Model, has.Processors[0].Architecture
	}
	sent := map[string]any{
		"inventory": map[string]any{
			"hostname": a.options.Server.Name, "interfaces": nics, "disks": disks, "cpu": cpu,
			"memory": map[string]int{"total": has.MemoryGiB << 30, "physical_mb": has.MemoryGiB << 10},
			"system_vendor": map[string]any{
				"manufacturer": has.Manufacturer, "product_name": has.Model, "serial_number": has.SerialNumber,
				"firmware": map[string]string{"vendor": has.Manufacturer, "version": has.BIOSVersion},
			},
			"boot": map[string]string{"current_boot_mode": cmp.Or(strings.ToLower(has.BIOS["BootMode"]), "uefi"), "pxe_interface": bootInterface},
		},
		"root_disk": nil, "boot_interface": bootInterface, "pci_devices": devices, "error": nil,
	}
	if len(disks) > 0 {
		sent["root_disk"] = disks[0]
	}
	return sent
}

// diskName is the device name of the disk that takes the image, for messages.
func (a *Agent) diskName() string {
	if disks := a.options.Server.Hardware.Disks; len(disks) > 0 {
		return disks[0].Name
	}
	return "/dev/sda"
}
