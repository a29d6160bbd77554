// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// state is what an environment is made of. It is written before anything is made.
type state struct {
	Management cluster `json:"management"`
	Tenant     cluster `json:"tenant"`
	Image      string  `json:"image,omitempty"`
	IPFamily   string  `json:"ipFamily"`
	AllServers bool    `json:"allServers,omitempty"`
	// Network is whether Docker's network of kind is ours to delete.
	Network bool `json:"network,omitempty"`
	// Rack is the URL of the admin API of the rack.
	Rack string `json:"rack,omitempty"`
	// Ready is whether Up has ended well.
	Ready bool `json:"ready,omitempty"`
}

type cluster struct {
	Name string `json:"name"`
	// Taken is whether it was there before, and stays.
	Taken bool `json:"taken,omitempty"`
}

func (c cluster) controlPlane() string { return c.Name + "-control-plane" }

// lock takes the folder for this process. The kernel gives it back when the process ends.
func (w *Environment) lock() (unlock func(), err error) {
	if err := os.MkdirAll(w.path("logs"), 0o700); err != nil {
		return nil, fmt.Errorf("making the environment's folder, %w", err)
	}
	file, err := os.OpenFile(w.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the environment's folder, %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("another kind-env is at work in %s: wait until it has ended, or stop it", w.config.Dir)
	}
	return func() { _ = file.Close() }, nil
}

// load reads what was made; found is whether there is anything.
func (w *Environment) load() (found bool, err error) {
	content, err := os.ReadFile(w.path("state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading what the environment is made of, %w", err)
	}
	if err := json.Unmarshal(content, &w.state); err != nil {
		return false, fmt.Errorf("reading %s, %w", w.path("state.json"), err)
	}
	return true, nil
}

// save writes the state. A process that is killed leaves the old one or the new one.
func (w *Environment) save() error {
	content, err := json.MarshalIndent(w.state, "", "  ")
	if err != nil {
		return err
	}
	temporary := w.path("state.json.new")
	if err := os.WriteFile(temporary, append(content, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing what the environment is made of, %w", err)
	}
	return os.Rename(temporary, w.path("state.json"))
}
