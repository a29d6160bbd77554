// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/docker"
)

// downTimeout bounds taking down what an Up that failed has made.
const downTimeout = 5 * time.Minute

// Up makes the environment, unless it is there already. made is whether it has made it.
func (w *Environment) Up(ctx context.Context) (made bool, err error) {
	unlock, err := w.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	found, err := w.load()
	if err != nil {
		return false, err
	}
	if found {
		if there, err := w.isThere(ctx); err != nil || there {
			return false, err
		}
		w.say("an earlier environment has not become ready, or its containers have stopped")
		if err := w.delete(ctx); err != nil {
			return false, err
		}
	}
	w.state = w.config.wanted()
	if err := w.check(ctx); err != nil {
		return false, err
	}
	has, err := w.hasNetwork(ctx)
	if err != nil {
		return false, err
	}
	w.state.Network = !has
	if err := w.save(); err != nil {
		return false, err
	}
	if err := w.make(ctx); err != nil {
		if w.config.Keep {
			return false, fmt.Errorf("%w; what was made is still there, and `make kind-down` deletes it", err)
		}
		w.keepLogs(context.WithoutCancel(ctx))
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
		defer cancel()
		return false, errors.Join(err, w.delete(down))
	}
	w.state.Ready = true
	return true, w.save()
}

// isThere returns whether the environment is up and as wanted. Another one that is up is an error.
func (w *Environment) isThere(ctx context.Context) (bool, error) {
	if !w.state.Ready {
		return false, nil
	}
	running, err := docker.Run(ctx, "ps", "--format", "{{.Names}}")
	if err != nil {
		return false, err
	}
	for _, name := range append(w.metalContainers(), w.state.Management.controlPlane(), w.state.Tenant.controlPlane()) {
		if !contains(running, name) {
			return false, nil
		}
	}
	wanted, is := w.config.wanted(), w.state
	is.Ready, is.Network, is.Rack = false, false, ""
	if wanted != is {
		return false, fmt.Errorf("the environment that is up has other settings, %+v and not %+v: delete it by `make kind-down`", is,
			wanted)
	}
	return true, nil
}

func contains(fields, field string) bool { return slices.Contains(strings.Fields(fields), field) }

// make makes the environment. Both clusters are created at once, and so are Metal3 and what the charts install.
func (w *Environment) make(ctx context.Context) error {
	clusters, step := errgroup.WithContext(ctx)
	clusters.Go(func() error {
		if err := w.createCluster(step, "management", w.state.Management); err != nil {
			return err
		}
		return w.loadImages(step)
	})
	clusters.Go(func() error {
		if err := w.untilNetwork(step); err != nil {
			return err
		}
		if err := w.createCluster(step, "tenant", w.state.Tenant); err != nil {
			return err
		}
		return w.prepareTenant(step)
	})
	if err := clusters.Wait(); err != nil {
		return err
	}
	management, err := w.prepareManagement(ctx)
	if err != nil {
		return err
	}
	programs, step := errgroup.WithContext(ctx)
	programs.Go(func() error { return w.startMetal(step, management) })
	programs.Go(func() error { return w.installCharts(step) })
	programs.Go(func() error { return w.installDriver(step) })
	return programs.Wait()
}

// keepLogs writes what an environment that is deleted will not say any more.
func (w *Environment) keepLogs(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, container := range w.metalContainers() {
		if err := os.WriteFile(w.path("logs", container+".log"), []byte(docker.Tail(ctx, container, 1000)+"\n"), 0o600); err != nil {
			w.say("keeping a log, %v", err)
		}
	}
	for role, cluster := range w.clusters() {
		if _, err := w.kind(ctx, "export", "logs", w.path("logs", role), "--name="+cluster.Name); err != nil {
			w.say("%v", err)
		}
	}
	w.say("logs are in %s", w.path("logs"))
}
