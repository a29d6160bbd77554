// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/release/published"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// TestUpgradeFromRegistry does what docs/install.md and docs/upgrade.md say with two releases, and has charts and programs from a registry
// alone: Helm pulls the charts, and a program is that of the image that its Deployment names. Last, the images are those for arm64.
func TestUpgradeFromRegistry(t *testing.T) {
	system.Only(t)
	registry := published.Start(t)
	before := released(t, registry.Publish(t, "0.1.0", "linux/amd64 linux/arm64"))
	now := released(t, registry.Publish(t, "0.1.1", "linux/amd64"))
	r := newRehearsal(t)
	r.follow(t, before)
	for _, rehearsed := range []struct {
		name string
		to   version
	}{{"Upgrade", now}, {rollback, before}} {
		if !t.Run(rehearsed.name, func(t *testing.T) { r.rehearse(t, rehearsed.name, rehearsed.to) }) {
			return // the next one depends on it
		}
	}
	t.Run("ForArm64", func(t *testing.T) {
		before.architecture, before.emulator = "arm64", published.Emulator(t)
		r.rehearse(t, "ForArm64", before)
	})
}
