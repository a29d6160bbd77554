// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command rack is a rack of emulated bare-metal servers: BMCs with Redfish or IPMI, the deploy agent for Ironic, and servers
// that boot the installed image.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/admin"
)

func main() {
	o := newOptions()
	command := operator.NewCommand(operator.Command{
		Name:  "rack",
		Short: "A rack of emulated bare-metal servers",
		Long: `rack emulates the metal, and nothing above it: servers with BMCs that speak Redfish or IPMI, for Ironic and Metal3 to manage.

A scenario file says which servers there are, and with which hardware. A server that is switched on boots from its virtual
CD or the network if its BMC was told so, and then runs the deploy agent: it looks itself up at Ironic, and cleans its disk
or writes the image and the config drive that Ironic gives. Otherwise it boots the image on its disk: the boot command is
run, in a process group of its own, with SERVER_NAME, SERVER_UUID, SERVER_MAC and SERVER_DIR in its environment. In that
directory are image (as it was downloaded), image.json (what it is), config-drive.iso and console.log (what the boot
command writes). The server is on for as long as the boot command runs, and power off ends it: SIGTERM, then SIGKILL.

The admin API shows what each server is doing, and sets faults: bmc-unreachable, wrong-password, slow, power-stuck,
agent-silent, image-write-fails, dies-after.

  rack --scenario rack.yaml --ironic-url http://127.0.0.1:6385 --boot-command ./boot.sh
  curl http://127.0.0.1:8090/v1/servers
  curl -X PUT http://127.0.0.1:8090/v1/servers/server-1/faults/slow -d '{"seconds": 5}'
  curl -X DELETE http://127.0.0.1:8090/v1/servers/server-1/faults/slow`,
		Flags: o.addFlags,
		Run:   func(ctx context.Context) error { return run(ctx, o) },
	})
	command.CompletionOptions.DisableDefaultCmd = true
	command.AddCommand(newChassisCommand())
	os.Exit(operator.Run(command))
}

// chassisCommand is the name of the command that a simulator executes.
const chassisCommand = "chassis"

// newChassisCommand returns the command that the simulator of a BMC with IPMI executes, and which asks the rack.
func newChassisCommand() *cobra.Command {
	return &cobra.Command{
		Use:   chassisCommand + " URL ARGUMENT...",
		Short: "Controls the chassis of a server, for ipmi_sim",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := admin.AskChassis(cmd.Context(), args[0], args[1:]...)
			if err == nil {
				_, err = io.WriteString(cmd.OutOrStdout(), answer)
			}
			return err
		},
	}
}

type options struct {
	scenario       string
	dataDir        string
	redfishAddress string
	adminAddress   string
	ironicURL      string
	agentHost      string
	heartbeat      time.Duration
	retry          time.Duration
	networkBoot    string
	ipmiSim        string
	bootCommand    string
	grace          time.Duration
}

func newOptions() *options {
	return &options{
		dataDir: "rack-data", redfishAddress: "127.0.0.1:8000", adminAddress: "127.0.0.1:8090", ironicURL: "http://127.0.0.1:6385",
		ipmiSim: "ipmi_sim", heartbeat: 5 * time.Second, retry: 2 * time.Second, grace: 10 * time.Second,
	}
}

func (o *options) addFlags(sections *cliflag.NamedFlagSets) {
	rack := sections.FlagSet("rack")
	rack.StringVar(&o.scenario, "scenario", o.scenario, "YAML file that describes the servers. Must be given.")
	rack.StringVar(&o.dataDir, "data-dir", o.dataDir,
		"Directory with the servers' disks, one directory for each. It is made if it is missing, and its disks are used again at the next "+
			"start.")
	rack.StringVar(&o.redfishAddress, "redfish-bind-address", o.redfishAddress,
		"Address of the BMCs' Redfish service, for all servers without one of their own in the scenario. Port 0 takes a free one.")
	rack.StringVar(&o.adminAddress, "admin-bind-address", o.adminAddress,
		"Address of the admin API. It has no authentication: keep it on loopback. Port 0 takes a free one.")
	rack.StringVar(&o.ipmiSim, "ipmi-sim", o.ipmiSim,
		"OpenIPMI's simulator, which runs the BMCs of servers whose protocol is ipmi in the scenario. Debian has it in the package openipmi.")

	agent := sections.FlagSet("deploy agent")
	agent.StringVar(&o.ironicURL, "ironic-url", o.ironicURL,
		"Where Ironic's API is. A boot medium that names one (ipa-api-url) is followed instead.")
	agent.StringVar(&o.agentHost, "agent-host", o.agentHost,
		"Address of this machine at which Ironic reaches the deploy agents, each at a free port. Empty means the one from which this machine "+
			"reaches Ironic.")
	agent.DurationVar(&o.heartbeat, "heartbeat-interval", o.heartbeat,
		"Time between two heartbeats of a deploy agent. When a command has ended, it calls at once.")
	agent.DurationVar(&o.retry, "retry-interval", o.retry, "Time between two attempts of a deploy agent to reach Ironic.")

	boot := sections.FlagSet("boot")
	boot.StringVar(&o.networkBoot, "network-boot-url", o.networkBoot,
		"URL of the directory from which servers boot by network: the one that has Ironic's boot.ipxe. Without it, a server that does so "+
			"runs the deploy agent without parameters.")
	boot.StringVar(&o.bootCommand, "boot-command", o.bootCommand,
		"Program that boots a server's image: it runs for as long as the server does. Without it, such a server runs nothing.")
	boot.DurationVar(&o.grace, "power-off-grace", o.grace, "Time that the boot command has between SIGTERM and SIGKILL when a server is "+
		"switched off.")
}

// complete checks the options, and makes their paths absolute.
func (o *options) complete() error {
	if o.scenario == "" {
		return errors.New("--scenario is empty: name the YAML file that describes the servers")
	}
	for flag, address := range map[string]string{"redfish-bind-address": o.redfishAddress, "admin-bind-address": o.adminAddress} {
		if err := operator.CheckAddress(flag, address); err != nil {
			return err
		}
	}
	if !isURL(o.ironicURL) {
		return fmt.Errorf("--ironic-url is %q: it must be like http://127.0.0.1:6385", o.ironicURL)
	}
	if o.networkBoot != "" && !isURL(o.networkBoot) {
		return fmt.Errorf("--network-boot-url is %q: it must be like http://127.0.0.1:8080, or empty", o.networkBoot)
	}
	if o.agentHost != "" && net.ParseIP(o.agentHost) == nil {
		return fmt.Errorf("--agent-host is %q: it must be an IP address of this machine, or empty", o.agentHost)
	}
	for flag, duration := range map[string]time.Duration{
		"heartbeat-interval": o.heartbeat, "retry-interval": o.retry, "power-off-grace": o.grace,
	} {
		if duration <= 0 {
			return fmt.Errorf("--%s is %v: it must be greater than zero", flag, duration)
		}
	}
	if o.bootCommand != "" {
		path, err := filepath.Abs(o.bootCommand)
		if err != nil {
			return fmt.Errorf("--boot-command, %w", err)
		}
		if info, err := os.Stat(path); err != nil {
			return fmt.Errorf("--boot-command, %w", err)
		} else if info.IsDir() || info.Mode()&0o111 == 0 {
			return fmt.Errorf("--boot-command is %s: it must be a program that can be executed", path)
		}
		o.bootCommand = path
	}
	dir, err := filepath.Abs(o.dataDir)
	if err != nil {
		return fmt.Errorf("--data-dir, %w", err)
	}
	o.dataDir = dir
	return nil
}

func isURL(text string) bool {
	parsed, err := url.Parse(text)
	return err == nil && parsed.Host != "" && (parsed.Scheme == "http" || parsed.Scheme == "https")
}
