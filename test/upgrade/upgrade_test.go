// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"slices"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// ownKeys is the step after the upgrades: the authors write our keys in place of the reference's, and the programs start again.
const ownKeys = "OwnKeys"

// TestUpgrade: an upgrade, a rollback and another upgrade touch no server that is in use, nor its node and pods, neither at the end nor
// between two steps, when programs of both versions work together. After each of them a new pod gets a server.
func TestUpgrade(t *testing.T) {
	system.Only(t)
	before, now := build(t, earlier), present(t)
	r := newRehearsal(t)
	r.install(t, before)
	r.startPod(t, "before")
	check := r.steps(t, now, "Check")
	for _, rehearsed := range []struct {
		name  string
		steps []step
	}{
		{"Upgrade", r.steps(t, now, "Upgrade")},
		{"Rollback", r.steps(t, before, "Roll back")},
		{"UpgradeAgain", r.steps(t, now, "Upgrade")},
		{ownKeys, r.steps(t, now, "Upgrade")},
	} {
		passed := t.Run(rehearsed.name, func(t *testing.T) {
			inUse := r.allInUse(t)
			if rehearsed.name == ownKeys {
				r.applyFleet(t, func(manifests string) string { return replaceAliases(t, manifests) })
			}
			for _, step := range slices.Concat(rehearsed.steps, check) {
				r.do(t, step)
				r.awaitWork(t, len(inUse.claims))
				r.checkUntouched(t, inUse)
			}
			if rehearsed.name != "Rollback" {
				r.checkTakenOver(t)
			}
			r.startPod(t, "after-"+rehearsed.name)
		})
		if !passed {
			return // the next one depends on it
		}
	}
}
