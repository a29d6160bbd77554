// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import "context"

// Power is the input of a server.
type Power struct {
	// On is true if the server has power.
	On bool
	// Install identifies the installation: it differs after each one, and is empty when the disk is empty. A server
	// that is switched on again with the same Install keeps its keys.
	Install string
}

// Source is where the servers' power and config drives come from.
type Source interface {
	// Watch calls changed with the power of every server, first and on each change, until the context is done, and then
	// returns nil. Calls for one server are in order. A server that is removed is off with an empty disk. An error
	// means that it could not watch.
	Watch(ctx context.Context, changed func(server string, power Power)) error
	// UserData reads the config drive of a server that is on. It returns ErrNoUserData, wrapped, if there is none and a
	// retry does not help.
	UserData(ctx context.Context, server string) ([]byte, error)
}
