// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"sync"
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
		Image:      c.Image, IPFamily: c.IPFamily, AllServers: c.AllServers,
	}
}
