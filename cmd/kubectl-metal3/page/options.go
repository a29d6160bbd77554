// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/version"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/ui"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

type options struct {
	server, authority      string
	address, healthAddress string
	certDir                string
	maxReaders             int64
	topologyLabels, links  []string
}

func newOptions() *options {
	return &options{address: ":8080", healthAddress: ":8081", maxReaders: 20, topologyLabels: topology.Defaults()}
}

func (o *options) addFlags(sections *cliflag.NamedFlagSets) {
	management := sections.FlagSet("management cluster")
	management.StringVar(&o.server, "server", o.server,
		"URL of the API server, or of a proxy that knows its users, with https. If empty, that of the cluster of the pod.")
	management.StringVar(&o.authority, "certificate-authority", o.authority,
		"File with the authority of the server's certificate. If empty, those of the system.")

	serving := sections.FlagSet("serving")
	serving.StringVar(&o.address, "page-bind-address", o.address,
		"Address that the page is served on. Each request has the token of its reader, as Authorization: Bearer TOKEN.")
	serving.StringVar(&o.certDir, "cert-dir", o.certDir,
		"Directory of tls.crt and tls.key, which are read again when they change. If empty, the page is served without TLS: tokens then are in "+
			"clear between the proxy and the page.")
	serving.Int64Var(&o.maxReaders, "max-readers", o.maxReaders,
		"Fleets that are followed at a time, one for each token and namespace. The memory that one takes grows with the fleet. A new reader "+
			"takes the place of one whose page is not open, or of one that has more pages open, and is refused if there is none.")
	serving.StringArrayVar(&o.links, "link", o.links, ui.LinkUsage)
	serving.StringVar(&o.healthAddress, "health-probe-bind-address", o.healthAddress,
		"Address that /healthz and /readyz are served on, for example :8081. \"0\" disables it.")

	inventory := sections.FlagSet("inventory")
	inventory.StringSliceVar(&o.topologyLabels, "topology-labels", o.topologyLabels, topology.Usage)
}

// complete checks the flags and returns how to reach the API server without credentials. The error names every wrong
// flag.
func (o *options) complete() (ui.TokenAccess, error) {
	mapping, err := topology.Parse(o.topologyLabels)
	links, badLink := ui.ParseLinks(o.links)
	errs := []error{err, badLink, operator.CheckSet("page-bind-address", o.address), operator.CheckAddress("page-bind-address", o.address),
		operator.CheckAddress("health-probe-bind-address", o.healthAddress), operator.CheckPositive("max-readers", o.maxReaders)}
	server := o.server
	if host := os.Getenv("KUBERNETES_SERVICE_HOST"); server == "" && host != "" {
		server = "https://" + net.JoinHostPort(host, cmp.Or(os.Getenv("KUBERNETES_SERVICE_PORT"), "443"))
	}
	switch {
	case server == "":
		errs = append(errs, errors.New("--server is empty and this is no pod: set it to the URL of the API server"))
	case !strings.HasPrefix(server, "https://"):
		errs = append(errs, fmt.Errorf("--server is %q: tokens are sent to an https URL only", server))
	}
	config := &rest.Config{Host: server, QPS: 50, Burst: 100, UserAgent: name + "/" + version.Get().GitVersion,
		TLSClientConfig: rest.TLSClientConfig{CAFile: o.authority}}
	if _, err := rest.TLSConfigFor(config); err != nil {
		errs = append(errs, fmt.Errorf("--certificate-authority is %q, %w: name a file with certificates", o.authority, err))
	}
	return ui.TokenAccess{Config: config, Topology: mapping, Links: links}, errors.Join(errs...)
}
