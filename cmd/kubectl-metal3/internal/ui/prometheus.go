// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

const (
	// recordedFor is how far the history goes back that Prometheus has, and recordedEvery how far apart its samples are.
	recordedFor   = 7 * 24 * time.Hour
	recordedEvery = 30 * time.Minute
	// The queries give the servers of each NodeType, and the Machines that have one. Each replica of the manager has the same numbers: see
	// docs/metrics.md.
	hostsQuery    = "max by (nodetype, state) (sum by (nodetype, state, instance) (karpenter_metal3_hosts))"
	machinesQuery = `max by (nodetype, phase) (sum by (nodetype, phase, instance) (karpenter_metal3_machines{phase!~"Pending|Claiming"}))`
)

// Prometheus has the history of a fleet from before the program was started.
type Prometheus struct{ api prometheusv1.API }

// NewPrometheus returns the one at that URL, which is not asked yet.
func NewPrometheus(address string) (*Prometheus, error) {
	parsed, err := url.Parse(address)
	if err != nil || !isWeb(parsed) {
		return nil, fmt.Errorf("--prometheus is %q: it must be a URL with https or http, as in http://127.0.0.1:9090", address)
	}
	client, err := api.NewClient(api.Config{Address: address})
	if err != nil {
		return nil, fmt.Errorf("--prometheus is %q, %w", address, err)
	}
	return &Prometheus{prometheusv1.NewAPI(client)}, nil
}

// read returns the samples that end at a time, by type only: a server that matches several types counts in each, so that their sum is not
// the number of servers.
func (p *Prometheus) read(ctx context.Context, end time.Time) ([]sample, error) {
	byTime := map[time.Time]map[string]counts{}
	add := func(query string, label model.LabelName, count func(counts, string, int32) counts) error {
		value, _, err := p.api.QueryRange(ctx, query, prometheusv1.Range{Start: end.Add(-recordedFor), End: end, Step: recordedEvery})
		if err != nil {
			return fmt.Errorf("asking Prometheus, %w", err)
		}
		matrix, is := value.(model.Matrix)
		if !is {
			return fmt.Errorf("asking Prometheus, the answer is a %s and no matrix", value.Type())
		}
		for _, series := range matrix {
			nodeType, state := string(series.Metric["nodetype"]), string(series.Metric[label])
			for _, pair := range series.Values {
				moment := pair.Timestamp.Time()
				if byTime[moment] == nil {
					byTime[moment] = map[string]counts{}
				}
				byTime[moment][nodeType] = count(byTime[moment][nodeType], state, int32(pair.Value))
			}
		}
		return nil
	}
	if err := add(hostsQuery, "state", func(counted counts, state string, servers int32) counts {
		counted[groupOf(view.State(state))] += servers
		return counted
	}); err != nil {
		return nil, err
	}
	// A claimed server is in the group of the phase of its Machine.
	if err := add(machinesQuery, "phase", func(counted counts, phase string, machines int32) counts {
		group, claimed := groupOf(view.State(phase)), groupOf("claimed")
		moved := min(machines, counted[claimed])
		counted[claimed] -= moved
		counted[group] += moved
		return counted
	}); err != nil {
		return nil, err
	}
	var samples []sample
	for _, moment := range slices.SortedFunc(maps.Keys(byTime), time.Time.Compare) {
		samples = append(samples, sample{time: moment, byType: byTime[moment]})
	}
	return samples, nil
}

// recorded is what Prometheus has said last.
type recorded struct {
	asked   time.Time
	samples []sample
	// Wrong is why it has said nothing.
	Wrong string
}

// recall asks Prometheus, if it was not asked lately. The streams of the page show it until the page is asked for again. A request that
// comes meanwhile shows what it said before.
func (s *Screen) recall(ctx context.Context) {
	now := s.clock.Now()
	s.mu.Lock()
	due := s.prometheus != nil && now.Sub(s.recorded.asked) >= refresh
	if due {
		s.recorded.asked = now
	}
	s.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	answer := recorded{asked: now}
	var err error
	if answer.samples, err = s.prometheus.read(ctx, now); err != nil {
		answer.Wrong = err.Error()
	}
	s.mu.Lock()
	s.recorded = answer
	current := s.current
	s.mu.Unlock() // drawing takes the lock of the version first
	current.forget(page{View: "capacity"})
}

// lastRecorded is what Prometheus has said last.
func (s *Screen) lastRecorded() recorded {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recorded
}

// historyOf is the one that is drawn of a type: what Prometheus has, as far as it has the type, and then what this program has seen.
func (d *drawing) historyOf(nodeType string) history {
	if d.recorded == nil {
		return d.history
	}
	var whole history
	for _, taken := range d.recorded.samples {
		if _, has := taken.byType[nodeType]; has && taken.time.Before(d.history.samples[0].time) {
			whole.samples = append(whole.samples, taken)
		}
	}
	whole.samples = append(whole.samples, d.history.samples...)
	return whole
}
