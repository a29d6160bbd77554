// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"
)

// notifications remembers whether the listener has been called, and requests that were refused.
type notifications struct {
	called  bool
	waiting []refused
}

type refused struct {
	request Request
	why     *NoHostError
}

func (n *notifications) take([]string) { n.called = true }

// refused makes a request without a Machine, and returns whether there is no host for it.
func (f fleet) refused(inventory *Inventory) (refused, bool) {
	request := f.request()
	request.Machine = ""
	_, err := inventory.give(request)
	var why *NoHostError
	found := errors.As(err, &why)
	return refused{request, why}, found
}

// missed describes a request that can be served now and could not be before, without a notification in between.
func (n *notifications) missed(inventory *Inventory) string {
	called := n.called
	n.called = false
	var still []refused
	for _, waiter := range n.waiting {
		_, err := inventory.give(waiter.request)
		var why *NoHostError
		if errors.As(err, &why) {
			still = append(still, refused{waiter.request, why})
			continue
		}
		if !called {
			return fmt.Sprintf("%+v was refused (%v) and can be served, and the listener has not been called", waiter.request, waiter.why)
		}
	}
	if len(still) > 50 {
		still = still[len(still)-50:]
	}
	n.waiting = still
	return ""
}

// give chooses a host and assumes it, as the Machine controller does.
func (i *Inventory) give(request Request) (Choice, error) {
	choice, err := i.Choose(request)
	if err == nil && request.Machine != "" && !i.Assume(choice, request.Machine) {
		return i.give(request) // the host was taken in between
	}
	return choice, err
}
