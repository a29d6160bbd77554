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

// rollback is the step that goes back.
const rollback = "Rollback"

// TestUpgrade: an upgrade, a rollback and another upgrade touch no server that is in use, nor its node and pods, neither at the end nor
// between two steps, when programs of both versions work together. After each of them a new pod gets a server.
func TestUpgrade(t *testing.T) {
	system.Only(t)
	before, now := build(t, earlier), present(t)
	r := newRehearsal(t)
	r.install(t, before)
	for _, rehearsed := range []struct {
		name string
		to   version
	}{{"Upgrade", now}, {rollback, before}, {"UpgradeAgain", now}, {ownKeys, now}} {
		if !t.Run(rehearsed.name, func(t *testing.T) { r.rehearse(t, rehearsed.name, rehearsed.to) }) {
			return // the next one depends on it
		}
	}
}

// rehearse does an upgrade or a rollback, and fails if a step of it touches what is in use.
func (r *rehearsal) rehearse(t *testing.T, name string, to version) {
	section := "Upgrade"
	if name == rollback {
		section = "Roll back"
	}
	inUse := r.allInUse(t)
	if name == ownKeys {
		r.applyFleet(t, func(manifests string) string { return replaceAliases(t, manifests) })
	}
	for _, step := range slices.Concat(r.steps(t, to, upgradePage, section), r.steps(t, to, upgradePage, "Check")) {
		r.do(t, step)
		r.awaitWork(t, len(inUse.claims))
		r.checkUntouched(t, inUse)
	}
	for _, info := range r.box.Processes().List() {
		if info.Restarts > 0 {
			t.Errorf("%s has ended and was started again %d times: %s", info.Name, info.Restarts, info.LogFile)
		}
	}
	r.startPod(t, "after-"+name)
}
