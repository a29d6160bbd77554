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
	// recordedFor is how far back the page asks Prometheus; recordedEvery is the distance of its samples.
	recordedFor   = 7 * 24 * time.Hour
	recordedEvery = 30 * time.Minute
	// The queries return the servers of each NodeType, and the Machines that have a server. Each replica of the
	// manager reports the same numbers: see docs/metrics.md.
	hostsQuery    = "max by (nodetype, state) (sum by (nodetype, state, instance) (karpenter_metal3_hosts))"
	machinesQuery = `max by (nodetype, phase) (sum by (nodetype, phase, instance) (karpenter_metal3_machines{phase!~"Pending|Claiming"}))`
)

// Prometheus has the history of a fleet from before the start of the program.
type Prometheus struct{ api prometheusv1.API }

// NewPrometheus returns a client of the Prometheus at a URL. It sends no request yet.
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

// read returns the samples up to a time, by type only: a server that matches several types counts in each of them, so
// the sum of the types is not the number of servers.
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
	// A claimed server counts in the group of its Machine's phase.
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

// recorded is the last answer of Prometheus.
type recorded struct {
	asked   time.Time
	samples []sample
	// Wrong is why Prometheus gave no samples.
	Wrong string
}

// recall asks Prometheus, unless it was asked lately. Streams of the page keep the last answer until somebody asks
// for the page again. A request in the meantime shows the previous answer.
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
	s.mu.Unlock() // a drawing takes the version's lock before this one
	current.forget(page{View: "capacity"})
}

func (s *Screen) lastRecorded() recorded {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recorded
}

// historyOf returns the history to draw for a type: the samples of Prometheus that have the type, followed by the
// samples of this program.
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
