// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import "strings"

// How long messages may be, in bytes. The API server takes longer ones in conditions, up to 32768 characters, but nobody
// would read them; of events it takes no longer ones.
const (
	maxConditionMessage = 4096
	maxEventNote        = 1024
)

const ellipsis = " ..."

// shortened cuts a message to so many bytes, and marks the cut.
func shortened(message string, limit int) string {
	if len(message) <= limit {
		return message
	}
	return strings.ToValidUTF8(message[:limit-len(ellipsis)], "") + ellipsis
}
