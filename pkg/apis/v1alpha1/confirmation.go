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

// What can harm a tenant is done to its TenantCluster only after an operator has confirmed it, by an annotation. Each danger has a key,
// confirm.karpenter.metal3.io/<danger>. The value is a token for the situation that was looked at, so that it does not confirm another
// one later. The message that asks for the confirmation has the command, with the token.

// Confirms returns whether an operator has confirmed the danger with that key in the situation with that token.
func (t *TenantCluster) Confirms(key, token string) bool {
	return token != "" && t.Annotations[key] == token
}

// Confirmation is the token with which an operator has confirmed the danger with that key, empty if none has.
func (t *TenantCluster) Confirmation(key string) string {
	return t.Annotations[key]
}

// ConfirmCommand is the command by which an operator confirms the danger with that key in the situation with that token.
func (t *TenantCluster) ConfirmCommand(key, token string) string {
	return shell.Command("kubectl annotate --overwrite tenantcluster -n %s %s", t.Namespace, t.Name, key+"="+token)
}

// ClusterToken is the token that accepts the cluster that the provider reports in place of the tenant's. It is a hash: what an
// operator runs has no text of the provider.
func (t *TenantCluster) ClusterToken() string {
	sum := sha256.Sum256([]byte(t.Status.ClusterUID + " " + t.Status.ObservedClusterUID))
	return hex.EncodeToString(sum[:8])
}

// RemoveConfirmation removes the confirmation of the danger with that key.
func (t *TenantCluster) RemoveConfirmation(key string) {
	delete(t.Annotations, key)
}

// ConfirmAnyNumber is the value of ConfirmDeleteMachinesAnnotationKey that confirms the deletion of any number of
// Machines. It is for tools that write objects first and delete them later, and do not know the number. It holds until
// its author removes it: a tool would write again what the manager has removed.
const ConfirmAnyNumber = "any"

// ConfirmsAnyDeletion returns whether an operator has confirmed that Machines are deleted, however many there are.
func (t *TenantCluster) ConfirmsAnyDeletion() bool {
	return t.Confirms(ConfirmDeleteMachinesAnnotationKey, ConfirmAnyNumber)
}

// ConfirmsDeletion returns whether an operator has confirmed that so many Machines are deleted.
func (t *TenantCluster) ConfirmsDeletion(machines int) bool {
	return t.ConfirmsAnyDeletion() || t.Confirms(ConfirmDeleteMachinesAnnotationKey, strconv.Itoa(machines))
}

// HowToConfirmDeletion says how an operator confirms that so many Machines are deleted.
func (t *TenantCluster) HowToConfirmDeletion(machines int) string {
	const key = ConfirmDeleteMachinesAnnotationKey
	return fmt.Sprintf("%s; or, where a tool such as Argo CD, Flux or Terraform deletes, have it first apply the "+
		"annotation %s: %s", t.ConfirmCommand(key, strconv.Itoa(machines)), key, ConfirmAnyNumber)
}
