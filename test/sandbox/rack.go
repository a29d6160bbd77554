// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/klog/v2/textlogger"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator"
)

// startRack switches on the rack of emulated servers. It is the only part that runs in this process, and it ends with s.ctx.
func (s *Sandbox) startRack() error {
	path := filepath.Join(s.config.Dir, "log", "rack.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of the rack, %w", err)
	}
	servers := make([]emulator.Server, 0, len(s.config.Fleet))
	for _, server := range s.config.Fleet {
		servers = append(servers, emulator.Server{
			Name: server.Name, Architecture: server.Architecture, Capacity: server.Capacity, Devices: server.Devices,
		})
	}
	rack, err := emulator.NewRack(emulator.Config{
		RESTConfig: s.ManagementConfig(), Namespace: HostNamespace, Servers: servers,
		Logger: textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log))),
	})
	if err != nil {
		_ = log.Close()
		return err
	}
	s.rack.Go(func() {
		defer func() { _ = log.Close() }()
		if err := rack.Run(s.ctx); err != nil && s.ctx.Err() == nil {
			s.cancel(fmt.Errorf("the rack of emulated servers failed, %w; its log is %s", err, path))
		}
	})
	return nil
}
