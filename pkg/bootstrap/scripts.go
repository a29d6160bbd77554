// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

// The text of our own scripts is compiled in.
import _ "embed"

//go:embed prepare-node.sh
var prepareScript string

//go:embed vcluster-join.sh
var vclusterScript string

const (
	prepareScriptPath  = "/var/lib/karpenter-metal3/prepare-node.sh"
	vclusterScriptPath = "/var/lib/karpenter-metal3/vcluster-join.sh"
)
