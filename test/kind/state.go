// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

// lockInterval is how often a lock is tried that another process has.
const lockInterval = 200 * time.Millisecond

// state is what an environment is made of. It is written before anything is made.
type state struct {
	Management cluster `json:"management"`
	Tenant     cluster `json:"tenant"`
	Image      string  `json:"image,omitempty"`
	IPFamily   string  `json:"ipFamily"`
	AllServers bool    `json:"allServers,omitempty"`
	DRADriver  bool    `json:"draDriver,omitempty"`
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

// lock takes the folder for this process and what it starts, and waits until it is free. The kernel gives it back when all of them have
// ended: where this process is killed, a kind or docker that it has started may still make something.
func (w *Environment) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(w.path("logs"), 0o700); err != nil {
		return nil, fmt.Errorf("making the environment's folder, %w", err)
	}
	file, err := os.OpenFile(w.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the environment's folder, %w", err)
	}
	if _, err = unix.FcntlInt(file.Fd(), unix.F_SETFD, 0); err == nil { // processes that are started inherit it
		err = w.untilLocked(ctx, int(file.Fd()))
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("locking the environment's folder %s, %w", w.config.Dir, err)
	}
	return func() { _ = file.Close() }, nil
}

func (w *Environment) untilLocked(ctx context.Context, descriptor int) error {
	reported := false
	return wait.PollUntilContextCancel(ctx, lockInterval, true, func(context.Context) (bool, error) {
		err := unix.Flock(descriptor, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err == nil, err
		}
		if !reported {
			w.say("waiting until another kind-env in %s has ended, with what it has started", w.config.Dir)
			reported = true
		}
		return false, nil
	})
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
