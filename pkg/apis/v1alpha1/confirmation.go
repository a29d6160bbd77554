// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
)

// An operator must confirm whatever can harm a tenant, by an annotation on its TenantCluster. Each danger has a key,
// confirm.karpenter.metal3.io/<danger>. The value is a token of the situation that the operator looked at, so it does
// not confirm a later one. The message that asks for the confirmation has the command, with the token.

// Confirms reports whether an operator has confirmed the danger with that key in the situation with that token.
func (t *TenantCluster) Confirms(key, token string) bool {
	return token != "" && t.Annotations[key] == token
}

// Confirmation returns the token of an operator's confirmation of the danger with that key, empty if there is none.
func (t *TenantCluster) Confirmation(key string) string {
	return t.Annotations[key]
}

// ConfirmCommand returns the command that confirms the danger with that key in the situation with that token.
func (t *TenantCluster) ConfirmCommand(key, token string) string {
	return shell.Command("kubectl annotate --overwrite tenantcluster -n %s %s", t.Namespace, t.Name, key+"="+token)
}

// ClusterToken returns the token that accepts the reported cluster in place of the tenant's. It is a hash, so that an
// operator's command contains no text of the provider.
func (t *TenantCluster) ClusterToken() string {
	sum := sha256.Sum256([]byte(t.Status.ClusterUID + " " + t.Status.ObservedClusterUID))
	return hex.EncodeToString(sum[:8])
}

// RemoveConfirmation removes the confirmation of the danger with that key.
func (t *TenantCluster) RemoveConfirmation(key string) {
	delete(t.Annotations, key)
}

// ConfirmAnyNumber is the value of ConfirmDeleteMachinesAnnotationKey that confirms the deletion of any number of
// Machines. It is for tools that write objects first and delete them later, and do not know the number. It stays until
// its author removes it: if the manager removed it, a tool would write it again.
const ConfirmAnyNumber = "any"

// ConfirmsAnyDeletion reports whether an operator has confirmed the deletion of any number of Machines.
func (t *TenantCluster) ConfirmsAnyDeletion() bool {
	return t.Confirms(ConfirmDeleteMachinesAnnotationKey, ConfirmAnyNumber)
}

// ConfirmsDeletion reports whether an operator has confirmed the deletion of that many Machines.
func (t *TenantCluster) ConfirmsDeletion(machines int) bool {
	return t.ConfirmsAnyDeletion() || t.Confirms(ConfirmDeleteMachinesAnnotationKey, strconv.Itoa(machines))
}

// HowToConfirmDeletion says how an operator confirms the deletion of that many Machines.
func (t *TenantCluster) HowToConfirmDeletion(machines int) string {
	const key = ConfirmDeleteMachinesAnnotationKey
	return fmt.Sprintf("%s; or, where a tool such as Argo CD, Flux or Terraform deletes, have it first apply the "+
		"annotation %s: %s", t.ConfirmCommand(key, strconv.Itoa(machines)), key, ConfirmAnyNumber)
}
