// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// rightsGrace is how long reads may be denied at start. An API server denies all reads until it has its RBAC rules.
const rightsGrace = 20 * time.Second

// stopTimeout is how long a program has to give up its lease. A manager that waits for caches has none and never stops.
const stopTimeout = 5 * time.Second

// Rights ends a program that may not read the kinds in its caches. Otherwise the caches would wait, and the program
// would end after minutes with an error that names no right, or never.
type Rights struct {
	optional []string
	// options are the options of the program that alone need a resource.
	options map[schema.GroupResource][]string
	grace   time.Duration
	missing chan error

	mu     sync.Mutex
	denied map[*toolscache.Reflector]denial
}

// denial is the API server's answer to the first read of a kind.
type denial struct {
	since time.Time
	err   error
}

// NewRights returns the rights of a program. It goes on without kinds of optional API groups, and logs this.
func NewRights(optional ...string) *Rights {
	return &Rights{optional: optional, options: map[schema.GroupResource][]string{}, grace: rightsGrace, missing: make(chan error, 1),
		denied: map[*toolscache.Reflector]denial{}}
}

// NeededFor says that the program reads resources of an API group only because of an option. The error about a missing
// right then names the option. Call it before any cache runs.
func (r *Rights) NeededFor(option, group string, resources ...string) {
	for _, resource := range resources {
		key := schema.GroupResource{Group: group, Resource: resource}
		r.options[key] = append(r.options[key], option)
	}
}

// Handler returns the handler for the cache of a cluster.
func (r *Rights) Handler(cluster string, config *rest.Config) toolscache.WatchErrorHandlerWithContext {
	return func(ctx context.Context, reflector *toolscache.Reflector, err error) {
		toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
		status := apierrors.APIStatus(nil)
		if !apierrors.IsForbidden(err) || !errors.As(err, &status) {
			return
		}
		purpose := ""
		if details := status.Status().Details; details != nil {
			if slices.Contains(r.optional, details.Group) {
				return
			}
			// In an answer about rights, the field for the kind holds the resource.
			if options := r.options[schema.GroupResource{Group: details.Group, Resource: details.Kind}]; len(options) > 0 {
				purpose = " only for " + strings.Join(options, " and ")
			}
		}
		r.deny(reflector, fmt.Errorf("the %s at %s denies this program what it needs%s, %w", cluster, config.Host, purpose, err))
	}
}

// deny records that a kind cannot be read. It ignores kinds that could be read before: a right that is taken away
// later, or an API server that restarts, must not end a program that works.
func (r *Rights) deny(reflector *toolscache.Reflector, err error) {
	if reflector.LastSyncResourceVersion() != "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	first, found := r.denied[reflector]
	if !found {
		first.since = time.Now()
	}
	r.denied[reflector] = denial{first.since, err}
	if time.Since(first.since) < r.grace {
		return
	}
	var texts []string
	for reflector, denial := range r.denied {
		if reflector.LastSyncResourceVersion() == "" {
			texts = append(texts, denial.err.Error())
		}
	}
	slices.Sort(texts)
	select {
	case r.missing <- errors.New(strings.Join(slices.Compact(texts), "; ") + ": give it the rights in config/rbac"):
	default: // the program is ending already
	}
}

// Start runs a manager. The error names the missing rights.
func (r *Rights) Start(ctx context.Context, mgr manager.Manager) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case missing := <-r.missing:
		stop()
		select {
		case <-ended:
		case <-time.After(stopTimeout):
		}
		return missing
	}
}
