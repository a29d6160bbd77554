// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"
)

// ClaimUID is the UID under which the Machine claims its server and its address, and stands in their references to it. A
// Machine that was restored from a backup keeps it when its own is another. It means nothing without the Machine's namespace
// and name: anybody with the right to write Machines can set the annotation.
func (m *Machine) ClaimUID() types.UID {
	return cmp.Or(types.UID(m.Annotations[ClaimUIDAnnotationKey]), m.UID)
}

// IsRestored tells whether the Machine is the copy of one that claimed under another UID.
func (m *Machine) IsRestored() bool { return m.ClaimUID() != m.UID }
