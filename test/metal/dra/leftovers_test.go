// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/leftovers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
)

// interfaceSuffix ends the names of the test's network interfaces. It is this process's, so that two runs can share a machine.
func interfaceSuffix() string { return fmt.Sprintf("-%d", os.Getpid()) }

// checkGone fails the test at its end, after everything was stopped, if something of it is left on the machine.
func (w *fixture) checkGone(t *testing.T) {
	t.Cleanup(func() {
		// The kernel ends the processes of a namespace some time after its first one.
		ctx, done := context.WithTimeout(context.Background(), 10*time.Second)
		defer done()
		if err := controlplane.Await(ctx, "nothing to be left of the test", func(context.Context) error {
			left, err := w.traces()
			if err == nil && len(left) > 0 {
				err = errors.New("there still is " + strings.Join(left, ", "))
			}
			return err
		}); err != nil {
			t.Error(err)
			return
		}
		w.logf("no process, mount, control group or link is left")
	})
}

// checkSeen fails if traces overlooks something of the running test: then checkGone would overlook it too.
func (w *fixture) checkSeen(t *testing.T) {
	t.Helper()
	left, err := w.traces()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(left, "\n")
	for _, kind := range []string{"process ", "control group ", "interface v20" + interfaceSuffix(), "interface dra" + interfaceSuffix(),
		"interface " + w.server().Link()} {
		if !strings.Contains(all, kind) {
			t.Errorf("the test runs, but no %s is found: leftovers would be missed too", kind)
		}
	}
}

// traces returns the processes, the control groups and the interfaces of the test. A process counts too if it sees a mount of it.
func (w *fixture) traces() ([]string, error) {
	ours := func(text []byte) bool {
		return bytes.Contains(text, []byte(w.dir)) || bytes.Contains(text, []byte(w.id))
	}
	groups, err := leftovers.ControlGroups(ours)
	if err != nil {
		return nil, err
	}
	processes, err := leftovers.Processes(ours)
	if err != nil {
		return nil, err
	}
	links, err := network.Complete(netlink.LinkList)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, group := range groups {
		found = append(found, "control group "+group)
	}
	for _, process := range processes {
		found = append(found, "process "+process)
	}
	for _, link := range links {
		if name := link.Attrs().Name; strings.HasSuffix(name, interfaceSuffix()) || name == w.server().Link() {
			found = append(found, "interface "+name)
		}
	}
	return found, nil
}
