// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ui is a page in the browser that shows the fleet of the package view, and follows it. It writes nothing. A page
// consists of parts. Each page is also an event stream of the parts that have changed. All viewers of a page share what is rendered.
// For a viewer only the sums of the parts that were sent are kept, and a slow one gets the next state later.
package ui
