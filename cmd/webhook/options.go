// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator/callers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/certs"
)

type options struct {
	cluster        operator.Cluster
	process        operator.Options
	address        string
	topologyLabels []string
	mapping        topology.Mapping // derived from topologyLabels
	shutdownDelay  time.Duration
	clientCA       string
	clientNames    []string
	inFlight       int64
	http2          bool

	certRotation bool
	certDir      string
	secret       types.NamespacedName
}

func newOptions() *options {
	process := operator.DefaultOptions(callers.Review)
	process.LeaderElection = nil // every replica answers
	return &options{
		process:        process,
		cluster:        operator.Cluster{Name: "management cluster", QPS: 50, Burst: 100},
		address:        ":9443",
		topologyLabels: topology.Defaults(),
		shutdownDelay:  5 * time.Second,
		inFlight:       16,
		certRotation:   true,
		secret:         types.NamespacedName{Namespace: "default", Name: certs.SecretName},
	}
}

func (o *options) addFlags(sections *cliflag.NamedFlagSets) {
	o.cluster.AddFlags(sections.FlagSet("management cluster"))
	o.process.AddFlags(sections)

	serving := sections.FlagSet("serving")
	serving.StringVar(&o.address, "webhook-bind-address", o.address, "Address that requests of the API server are answered on, with TLS.")
	serving.DurationVar(&o.shutdownDelay, "shutdown-delay", o.shutdownDelay,
		"How long requests are still served after SIGTERM, while the process is not ready: how long a Service may take to stop sending them.")
	serving.StringVar(&o.clientCA, "client-ca-file", o.clientCA,
		"File with the authority of client certificates. If set, only clients with such a certificate are answered: the API server has one "+
			"by the kubeConfigFile of its AdmissionConfiguration. Read at start.")
	serving.StringSliceVar(&o.clientNames, "client-names", o.clientNames,
		"Common names of client certificates that are accepted. If unset, all that the authority of --client-ca-file has signed.")
	serving.Int64Var(&o.inFlight, "max-requests-in-flight", o.inFlight,
		"Requests that are answered at the same time, one of them with a large body. Others wait, and are refused 4 s after "+
			"they have begun.")
	serving.BoolVar(&o.http2, "enable-http2", o.http2, "Answer HTTP/2 as well. One client can then open many requests with one connection.")

	certificates := sections.FlagSet("certificates")
	certificates.BoolVar(&o.certRotation, "cert-rotation", o.certRotation,
		"Serve the certificate of a Secret that a manager with --webhook-cert-rotation makes and renews. "+
			"If false, it is read from --cert-dir, and again when the files change; another program, such as cert-manager, does the rest.")
	certificates.StringVar(&o.certDir, "cert-dir", o.certDir, "Directory of tls.crt and tls.key, with --cert-rotation=false.")
	certificates.StringVar(&o.secret.Namespace, "namespace", o.secret.Namespace, "Namespace of the Secret with the certificate.")
	certificates.StringVar(&o.secret.Name, "cert-secret", o.secret.Name, "Name of the Secret with the certificate.")

	inventory := sections.FlagSet("inventory")
	inventory.StringSliceVar(&o.topologyLabels, "topology-labels", o.topologyLabels, topology.Usage)
}

// complete checks the flags and derives the remaining fields from them. The error names every wrong flag.
func (o *options) complete() (host string, port int, err error) {
	errs := []error{o.process.Validate(), operator.CheckAddress("webhook-bind-address", o.address)}
	host, text, err := net.SplitHostPort(o.address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 1 {
		errs = append(errs, fmt.Errorf("--webhook-bind-address is %q: write an address and a port, for example :9443", o.address))
	}
	o.mapping, err = topology.Parse(o.topologyLabels)
	errs = append(errs, err, operator.CheckPositive("max-requests-in-flight", o.inFlight))
	if o.clientCA == "" && len(o.clientNames) > 0 {
		errs = append(errs, errors.New("--client-names is set and --client-ca-file is not: the names of certificates mean nothing without their "+
			"authority, so set it, or leave the names out"))
	}
	if o.certRotation {
		errs = append(errs, operator.CheckSet("namespace", o.secret.Namespace), operator.CheckSet("cert-secret", o.secret.Name))
	} else {
		for _, file := range []string{"tls.crt", "tls.key"} {
			if _, err := os.Stat(filepath.Join(o.certDir, file)); err != nil {
				errs = append(errs, fmt.Errorf("--cert-rotation is false and --cert-dir is %q, %w: set it to a directory with tls.crt and tls.key",
					o.certDir, err))
			}
		}
	}
	return host, port, errors.Join(errs...)
}
