// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import "context"

// Power is what the world outside has done to a server.
type Power struct {
	// On says whether it has power.
	On bool
	// Install identifies what is on its disk: it differs after each installation, and is empty when the disk is empty.
	// A server that is switched on again with the same Install still has the keys that it made before.
	Install string
}

// Source is where the servers' power and config drives come from.
type Source interface {
	// Watch calls changed with the power of every server that the source knows, first and on each change, until the
	// context is done, and returns nil then. Calls for one server are in order. A server that goes away is off with
	// an empty disk. The error is why it could not watch.
	Watch(ctx context.Context, changed func(server string, power Power)) error
	// UserData reads the config drive of a server that is on. ErrNoUserData, wrapped, says that there is none and
	// that asking again does not help.
	UserData(ctx context.Context, server string) ([]byte, error)
}
