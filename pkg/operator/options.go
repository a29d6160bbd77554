// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Options are the flags of every program.
type Options struct {
	// StartupTimeout is how long to wait at start for an API server that does not answer.
	StartupTimeout time.Duration
	// MetricsAddress, HealthAddress and PprofAddress are bind addresses. Disabled turns one off.
	MetricsAddress, HealthAddress, PprofAddress string
	// MetricsSecure serves metrics with TLS, to clients that the manager's cluster allows to get /metrics.
	MetricsSecure bool
	// review asks that cluster. A program without a review has no flag for MetricsSecure.
	review MetricsReview
	// LeaderElection is nil for a program whose replicas all work.
	LeaderElection *LeaderElection
}

// LeaderElection configures how the replicas of a program elect the one that works.
type LeaderElection struct {
	// Enabled means to work only while holding the lease.
	Enabled bool
	// LeaseDuration is how long other replicas respect the lease of a leader that has stopped renewing it.
	LeaseDuration time.Duration
	// RenewDeadline is how long a leader tries to renew before it stops working. The process then ends.
	RenewDeadline time.Duration
	// RetryPeriod is the time between attempts.
	RetryPeriod time.Duration
}

// MetricsReview makes the filter that decides who may read metrics.
type MetricsReview func(*rest.Config, *http.Client) (metricsserver.Filter, error)

// DefaultOptions returns the options of a program with leader election. The lease is longer than controller-runtime's
// default of 15 s, so that a restart of the API server does not end the leader. The review is nil for a program that
// has no right to ask who reads its metrics.
func DefaultOptions(review MetricsReview) Options {
	return Options{
		StartupTimeout: 30 * time.Second,
		MetricsAddress: ":8080",
		MetricsSecure:  review != nil,
		review:         review,
		HealthAddress:  ":8081",
		PprofAddress:   Disabled,
		LeaderElection: &LeaderElection{Enabled: true, LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second,
			RetryPeriod: 5 * time.Second},
	}
}

// AddFlags adds the flags. The current values of the struct are the defaults.
func (o *Options) AddFlags(sections *cliflag.NamedFlagSets) {
	process := sections.FlagSet("process")
	process.DurationVar(&o.StartupTimeout, "startup-timeout", o.StartupTimeout,
		"How long to wait at start for an API server that does not answer.")
	process.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress,
		"Address that /metrics is served on, for example :8080. \"0\" disables it.")
	if o.review != nil {
		process.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure,
			"Serve /metrics with TLS, by a certificate made at start, to clients with a token of the cluster and the right to get /metrics. If "+
				"false, without encryption and to all.")
	}
	process.StringVar(&o.HealthAddress, "health-probe-bind-address", o.HealthAddress,
		"Address that /healthz and /readyz are served on, for example :8081. \"0\" disables it.")
	process.StringVar(&o.PprofAddress, "pprof-bind-address", o.PprofAddress,
		"Address that Go's profiles are served on, under /debug/pprof, for example 127.0.0.1:6060. \"0\" disables it.")
	if o.LeaderElection == nil {
		return
	}
	leader := sections.FlagSet("leader election")
	leader.BoolVar(&o.LeaderElection.Enabled, "leader-elect", o.LeaderElection.Enabled,
		"Work only while holding the lease, so that several replicas can run.")
	leader.DurationVar(&o.LeaderElection.LeaseDuration, "leader-elect-lease-duration", o.LeaderElection.LeaseDuration,
		"How long another replica waits before it takes over the lease of a leader that has stopped renewing.")
	leader.DurationVar(&o.LeaderElection.RenewDeadline, "leader-elect-renew-deadline", o.LeaderElection.RenewDeadline,
		"How long the leader tries to renew its lease before it exits. Must be less than the lease duration.")
	leader.DurationVar(&o.LeaderElection.RetryPeriod, "leader-elect-retry-period", o.LeaderElection.RetryPeriod,
		"Time between attempts to take or renew the lease.")
}

// Validate returns an error that names each wrong flag.
func (o *Options) Validate() error {
	errs := []error{CheckPositive("startup-timeout", o.StartupTimeout)}
	for _, flag := range []struct{ name, address string }{
		{"metrics-bind-address", o.MetricsAddress}, {"health-probe-bind-address", o.HealthAddress}, {"pprof-bind-address", o.PprofAddress},
	} {
		errs = append(errs, CheckAddress(flag.name, flag.address))
	}
	l := o.LeaderElection // client-go would refuse these values later, without the names of the flags
	if l != nil && l.Enabled && (l.RetryPeriod <= 0 || l.RenewDeadline < 2*l.RetryPeriod || l.LeaseDuration <= l.RenewDeadline) {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration is %v, --leader-elect-renew-deadline %v and "+
			"--leader-elect-retry-period %v: the lease duration must be greater than the renew deadline, and that at least twice "+
			"the retry period", l.LeaseDuration, l.RenewDeadline, l.RetryPeriod))
	}
	return errors.Join(errs...)
}

// CheckPositive returns an error that names the flag if its duration or number is not greater than zero.
func CheckPositive[T ~int64](flag string, value T) error {
	if value <= 0 {
		return fmt.Errorf("--%s is %v: it must be greater than zero", flag, value)
	}
	return nil
}

// CheckNotNegative returns an error unless the value of the flag is zero or more.
func CheckNotNegative[T ~int64](flag string, value T) error {
	if value < 0 {
		return fmt.Errorf("--%s is %v: it must not be negative", flag, value)
	}
	return nil
}

// CheckSet returns an error that names the flag if its text is empty.
func CheckSet(flag, value string) error {
	if value == "" {
		return fmt.Errorf("--%s is empty: set it or %s", flag, EnvName(flag))
	}
	return nil
}

// Disabled is the bind address for "do not serve".
const Disabled = "0"

// CheckAddress returns an error that names the flag if the process cannot listen on its bind address. Servers return
// this error too, but later, and without the flag.
func CheckAddress(flag, address string) error {
	if address == Disabled || address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--%s is %q, which cannot be listened on, %w: choose another address, or %q to do without", flag, address, err,
			Disabled)
	}
	return listener.Close()
}
