// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ui serves a page for the browser that shows and follows the fleet of the package view. It writes nothing. A
// page consists of parts. Each page is also an event stream of its changed parts. All viewers of a page share the
// rendered parts. For each viewer, ui keeps only the sums of the parts that it sent. A slow viewer gets the next
// state later.
package ui
