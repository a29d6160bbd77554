// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"strings"
	"time"
)

// maxSamples is how many samples a history keeps. When it is full, every second sample is dropped, and samples are
// taken half as often.
const maxSamples = 480

// counts are numbers of servers, in the order of groups.
type counts [5]int32

func (c counts) total() (sum int32) {
	for _, count := range c {
		sum += count
	}
	return sum
}

// sample is the number of servers in each group at a time, for all servers and by type.
type sample struct {
	time   time.Time
	all    counts
	byType map[string]counts
}

// history is the known past since the start of the program.
type history struct {
	samples []sample
	every   time.Duration
}

// add appends a sample, or replaces the newest one if that is too new. The newest sample is always the present.
func (h *history) add(latest sample) {
	if last := len(h.samples) - 1; last > 0 && latest.time.Sub(h.samples[last-1].time) < h.every {
		h.samples[last] = latest
		return
	}
	if len(h.samples) == maxSamples {
		for i := range maxSamples / 2 {
			h.samples[i] = h.samples[2*i]
		}
		h.samples = append([]sample(nil), h.samples[:maxSamples/2]...)
		h.every *= 2
	}
	h.samples = append(h.samples, latest)
}

// The size of a plot in its own units.
const (
	plotWidth  = 600
	plotHeight = 120
)

// plot is a stacked chart over time.
type plot struct {
	Name  string
	Areas []area
	Start time.Time
	Now   time.Time
	Top   int32
	// Words are the present in words, for readers who do not see the chart.
	Words string
}

// Clock formats a moment, with the date if the plot spans more than a day.
func (p plot) Clock(moment time.Time) string {
	if p.Now.Sub(p.Start) > 24*time.Hour {
		return moment.UTC().Format("2006-01-02 15:04")
	}
	return moment.UTC().Format("15:04:05")
}

// area is the area of one group, as an SVG path.
type area struct{ Group, Path string }

// plot draws the counts that pick returns for each sample. It draws steps: nothing is known between two samples.
func (h *history) plot(name string, pick func(sample) counts) plot {
	first, last := h.samples[0], h.samples[len(h.samples)-1]
	drawn := plot{Name: name, Start: first.time, Now: last.time}
	for _, sample := range h.samples {
		drawn.Top = max(drawn.Top, pick(sample).total())
	}
	present := pick(last)
	var words []string
	for i, group := range groups {
		words = append(words, fmt.Sprintf("%d %s", present[i], group.Words))
	}
	drawn.Words = strings.Join(words, ", ")
	span := max(last.time.Sub(first.time).Seconds(), 1)
	x := func(moment time.Time) int { return int(moment.Sub(first.time).Seconds() / span * plotWidth) }
	y := func(count int32) int { return plotHeight - int(count*plotHeight/max(drawn.Top, 1)) }
	below := make([]int32, len(h.samples))
	for i, group := range groups {
		var upper, lower []string
		some := false
		for n, sample := range h.samples {
			from, to := x(sample.time), plotWidth
			if n+1 < len(h.samples) {
				to = x(h.samples[n+1].time)
			}
			count := pick(sample)[i]
			some = some || count > 0
			upper = append(upper, fmt.Sprintf("%d %dH%d", from, y(below[n]+count), to))
			lower = append([]string{fmt.Sprintf("%d %dH%d", to, y(below[n]), from)}, lower...)
			below[n] += count
		}
		if some {
			drawn.Areas = append(drawn.Areas, area{group.Name, "M" + strings.Join(upper, "L") + "L" + strings.Join(lower, "L") + "z"})
		}
	}
	return drawn
}
