// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kind makes an environment out of two kind clusters: a management cluster with our charts, a tenant cluster, and beside them, in
// containers on the same network, Metal3 and a rack of emulated servers that join the tenant with real kubelets.
//
// An environment is what one folder says (.kind of a checkout): state.json has what was made, and is written before anything is
// made, so that Down finds everything, also after an Up that was killed. Up checks first, and makes nothing if a check fails; an
// Up that fails later takes down what it has made.
//
// The charts are installed by the commands of docs/install.md. What is changed in kind's clusters beyond that is in prepareTenant.
package kind

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Names of the clusters, if none are taken.
const (
	defaultManagement = "metal3-management"
	defaultTenant     = "metal3-tenant"
)

const (
	// hostNamespace has the servers, releaseNamespace the charts, and tenantName is the tenant's name and its namespace in the
	// management cluster.
	hostNamespace    = "metal3-system"
	releaseNamespace = "karpenter-metal3"
	tenantName       = "tenant-a"
)

// Config says which environment there shall be.
type Config struct {
	// Repository is the checkout: its bin, charts and docs are used.
	Repository string
	// Dir is the folder of the environment.
	Dir string
	// Kind is the program.
	Kind string
	// Management and Tenant are clusters of kind that are there already. Empty: they are created.
	Management, Tenant string
	// Image is the node image of clusters that are created. Empty: kind's own.
	Image string
	// IPFamily of clusters that are created: ipv4, dual or ipv6.
	IPFamily string
	// AllServers registers the servers for all tests, and not only the reference fleet.
	AllServers bool
	// DRADriver installs a DRA driver in the tenant cluster, which publishes one device of each server.
	DRADriver bool
	// Keep leaves what an Up that fails has made.
	Keep bool
	// Out gets the progress.
	Out io.Writer
}

// An Environment is the clusters and containers of one folder.
type Environment struct {
	config Config
	start  time.Time
	mu     sync.Mutex
	state  state
	// endpoint is where servers and pods reach the tenant's API server.
	endpoint string
}

// New returns the environment of a folder, which need not be there.
func New(config Config) *Environment {
	return &Environment{config: config, start: time.Now()}
}

// say prints one line of progress, with the seconds since the start.
func (w *Environment) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = fmt.Fprintf(w.config.Out, "+%6.1fs  %s\n", time.Since(w.start).Seconds(), fmt.Sprintf(format, args...))
}

func (w *Environment) path(parts ...string) string {
	return filepath.Join(append([]string{w.config.Dir}, parts...)...)
}

func (w *Environment) bin(parts ...string) string {
	return filepath.Join(append([]string{w.config.Repository, "bin"}, parts...)...)
}

// ManagementKubeconfig and TenantKubeconfig are administrators' kubeconfig files, for use on this machine.
func (w *Environment) ManagementKubeconfig() string { return w.path("management.kubeconfig") }

// TenantKubeconfig is that of the tenant cluster.
func (w *Environment) TenantKubeconfig() string { return w.path("tenant.kubeconfig") }

// wanted is the state of an environment as the configuration wants it.
func (c Config) wanted() state {
	return state{
		Management: cluster{Name: cmp.Or(c.Management, defaultManagement), Taken: c.Management != ""},
		Tenant:     cluster{Name: cmp.Or(c.Tenant, defaultTenant), Taken: c.Tenant != ""},
		Image:      c.Image, IPFamily: c.IPFamily, AllServers: c.AllServers, DRADriver: c.DRADriver,
	}
}

// run runs a program and returns its standard output. An error is one sentence, with the last line that the program has printed as an
// error.
func (w *Environment) run(ctx context.Context, program string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, program, args...)
	var output, problems bytes.Buffer
	command.Stdout, command.Stderr = &output, &problems
	// kind is told to stop, and ends its own children.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	err := command.Run()
	name := filepath.Base(program)
	switch {
	case err == nil:
		return strings.TrimSpace(output.String()), nil
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("there is no %s: `make kind-up` builds it", program)
	case ctx.Err() != nil:
		return "", fmt.Errorf("running %s %s, %w", name, args[0], context.Cause(ctx))
	}
	log := w.path("logs", name+".log")
	content := fmt.Sprintf("%s %s\n%s%s\n", name, strings.Join(args, " "), output.Bytes(), problems.Bytes())
	if file, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err == nil {
		_, _ = file.WriteString(content)
		_ = file.Close()
	}
	return "", fmt.Errorf("%s %s has failed, %w: %s (all of its output is in %s)", name, strings.Join(args[:min(2, len(args))], " "), err,
		lastError(problems.String()), log)
}

// lastError is the line that says why: the last one that begins as an error, otherwise the last one.
func lastError(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	why := lines[len(lines)-1]
	for _, line := range lines {
		if strings.HasPrefix(strings.ToLower(line), "error") {
			why = line
		}
	}
	return strings.TrimSpace(why)
}

// kind runs kind, which must not touch the user's own kubeconfig: commands that write one are given its path.
func (w *Environment) kind(ctx context.Context, args ...string) (string, error) {
	return w.run(ctx, w.config.Kind, args...)
}

// kubectl runs kubectl as an administrator of one of the clusters.
func (w *Environment) kubectl(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	return w.run(ctx, w.bin("kubectl"), append(args, "--kubeconfig="+kubeconfig)...)
}
