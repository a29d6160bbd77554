// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ui is a page in the browser that shows the fleet of pkg/view, and follows it. It writes nothing. A page consists of parts. Each
// page is also an event stream, for those who ask for one, of the parts that have changed. What is rendered is shared among all viewers of
// a page; for a viewer, only the sums of the parts that were sent are kept, and one that is slow gets the next state later.
package ui
