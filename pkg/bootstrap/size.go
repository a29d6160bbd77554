// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// MaxDocumentBytes is the largest user data, and the largest network data, that a server can be given. Metal3 reads
// each from a Secret, and the API server takes none that is larger. Ironic's limit for the whole config drive is 64 MiB.
const MaxDocumentBytes = corev1.MaxSecretSize

func checkSize(kind string, size int) error {
	if size <= MaxDocumentBytes {
		return nil
	}
	return fmt.Errorf("%s has %d bytes, and Metal3 takes at most %d: fetch large files at boot instead of writing them out", kind, size,
		MaxDocumentBytes)
}
