// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// ChosenHost is the host that the manager has chosen for the Machine, and the NodeType that it claims it as. It reports false
// if there is none. The status has both once the host is claimed, and is the truth from then on. Every account with the right to
// write Machines can set the annotation: it gives no right to a host.
func (m *Machine) ChosenHost() (host HostReference, nodeType string, found bool) {
	parts := strings.Split(m.Annotations[ChosenHostAnnotationKey], "/")
	if len(parts) != 4 {
		return HostReference{}, "", false
	}
	return HostReference{Namespace: parts[0], Name: parts[1], UID: types.UID(parts[2])}, parts[3], true
}

// Host is the host that the Machine has, or that was chosen for it and may be claimed. It reports false if there is none.
func (m *Machine) Host() (HostReference, bool) {
	if m.Status.HostRef != nil {
		return *m.Status.HostRef, true
	}
	chosen, _, found := m.ChosenHost()
	return chosen, found
}

// SetChosenHost writes what ChosenHost reads.
func (m *Machine) SetChosenHost(host HostReference, nodeType string) {
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[ChosenHostAnnotationKey] = strings.Join([]string{host.Namespace, host.Name, string(host.UID), nodeType}, "/")
}
