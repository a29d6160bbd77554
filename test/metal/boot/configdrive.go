// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// WriteConfigDrive writes the config drive of a server, by the command with which Ironic makes it: its UUID, its name, its network data
// and its user data. Image is where the command is.
func (s Server) WriteConfigDrive(networkData, userData []byte) error {
	metadata, err := json.Marshal(map[string]string{"uuid": s.UUID, "name": s.Name, "hostname": s.Name})
	if err != nil {
		return err
	}
	drive, err := os.MkdirTemp("", "config-drive")
	if err != nil {
		return fmt.Errorf("making a config drive, %w", err)
	}
	defer func() { _ = os.RemoveAll(drive) }()
	latest := filepath.Join(drive, "openstack", "latest")
	if err := os.MkdirAll(latest, 0o700); err != nil {
		return fmt.Errorf("making a config drive, %w", err)
	}
	for name, content := range map[string][]byte{"meta_data.json": metadata, "network_data.json": networkData, "user_data": userData} {
		if err := os.WriteFile(filepath.Join(latest, name), content, 0o600); err != nil {
			return fmt.Errorf("making a config drive, %w", err)
		}
	}
	program, environment := s.Tool("usr/bin/genisoimage")
	command := exec.Command(program, "-o", s.ConfigDrive(),
		"-ldots", "-allow-lowercase", "-allow-multidot", "-l", "-publisher", "ironic", "-quiet", "-J", "-r", "-V", "config-2", drive)
	command.Env = environment
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("making a config drive, %w: %s", err, output)
	}
	return nil
}
