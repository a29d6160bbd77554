// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// Complete calls a function that lists links or routes until its answer is complete. The kernel interrupts a list when
// something changes meanwhile, such as by other tests on the machine.
func Complete[T any](list func() ([]T, error)) ([]T, error) {
	const attempts = 100
	var all []T
	var err error
	for range attempts {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
