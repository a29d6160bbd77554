// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command rack is a rack of emulated bare-metal servers: BMCs with Redfish, the deploy agent for Ironic, and servers
// that boot the installed image.
package main

import (
	"context"
	"os"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

func main() {
	o := newOptions()
	os.Exit(operator.Run(operator.NewCommand(operator.Command{
		Name:  "rack",
		Short: "A rack of emulated bare-metal servers",
		Long: `rack emulates the metal, and nothing above it: servers with BMCs that speak Redfish, for Ironic and Metal3 to manage.

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
	})))
}
