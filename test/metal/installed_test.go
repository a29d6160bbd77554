// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

// checkInstalled checks the server of a Machine: the image on its disk, what it booted, and the config drive that
// Ironic made of our Secrets.
func (w *stackFixture) checkInstalled(t *testing.T, name string, image stack.Image) {
	t.Helper()
	server, err := w.Rack.Server(t.Context(), w.hostOf(t, name))
	if err != nil {
		t.Fatal(err)
	}
	if server.Image == nil || server.Image.URL != image.URL || server.Image.Checksum != "sha256:"+image.Checksum {
		t.Errorf("server %s has image %+v on its disk, want %+v, with the checksum found to be right", server.Name, server.Image, image)
	}
	booted := fmt.Sprintf("%s boots image %s", server.Name, image.Checksum)
	w.until(t, "server "+server.Name+" has booted", func(context.Context) error {
		console, err := os.ReadFile(filepath.Join(server.Dir, "console.log"))
		if err == nil && !strings.Contains(string(console), booted) {
			err = fmt.Errorf("its console has %q", console)
		}
		return err
	})

	drive := filepath.Join(server.Dir, "config-drive.iso")
	userData := string(readDrive(t, drive, "user_data"))
	for _, part := range []string{"hostname: web", "/run/booted"} {
		if !strings.Contains(userData, part) {
			t.Errorf("the user data on the config drive does not hold %q:\n%s", part, userData)
		}
	}
	machine, _ := look[*v1alpha1.Machine](w.journal, name)
	if len(machine.Status.Addresses) == 0 {
		t.Fatalf("Machine %s has no address", name)
	}
	checkNetworkData(t, readDrive(t, drive, "network_data.json"), server.MACs[0], machine.Status.Addresses[0].Address)
	var metaData map[string]any
	if err := json.Unmarshal(readDrive(t, drive, "meta_data.json"), &metaData); err != nil {
		t.Fatalf("the meta data on the config drive, %v", err)
	}
	if metaData["metal3-name"] != server.Name || metaData["uuid"] == nil {
		t.Errorf("the meta data on the config drive is %v, want that of host %s", metaData, server.Name)
	}
}

// checkNetworkData fails if the interface that the server boots from does not have the address of the Machine.
func checkNetworkData(t *testing.T, data []byte, mac, address string) {
	t.Helper()
	var network struct {
		Links []struct {
			ID  string `json:"id"`
			MAC string `json:"ethernet_mac_address"`
		} `json:"links"`
		Networks []struct {
			Link    string `json:"link"`
			Address string `json:"ip_address"`
			Routes  []struct {
				Gateway string `json:"gateway"`
			} `json:"routes"`
		} `json:"networks"`
		Services []struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		} `json:"services"`
	}
	if err := json.Unmarshal(data, &network); err != nil {
		t.Fatalf("the network data on the config drive, %v", err)
	}
	if len(network.Links) != 1 || len(network.Networks) != 1 || len(network.Services) != 1 || len(network.Networks[0].Routes) != 1 {
		t.Fatalf("the network data on the config drive is\n%s\nwant one link, one network with one route, and one name server", data)
	}
	link, found := network.Links[0], network.Networks[0]
	got := []string{strings.ToLower(link.MAC), found.Link, found.Address, found.Routes[0].Gateway, network.Services[0].Address}
	if diff := cmp.Diff([]string{mac, link.ID, address, "10.20.0.1", "10.20.0.53"}, got); diff != "" {
		t.Errorf("the network data on the config drive (-want +got):\n%s\n%s", diff, data)
	}
}

// readDrive reads a file of a config drive, with the program that comes with the one that Ironic made it with.
func readDrive(t *testing.T, drive, file string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "ironic", "root", "usr", "bin", "isoinfo"), "-R", "-i", drive, "-x",
		"/openstack/latest/"+file)
	content, err := command.Output()
	if err != nil || len(content) == 0 {
		t.Fatalf("reading %s of the config drive %s, it has %d bytes, %v", file, drive, len(content), err)
	}
	return content
}
