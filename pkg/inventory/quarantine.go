// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Quarantine is why, since when and because of which Machine a host is kept out of the pool.
type Quarantine struct {
	// Reason is the reason of the Machine's condition GivenUp.
	Reason string
	// Since is when the Machine was given up, to the second.
	Since time.Time
	// Machine that was given up.
	Machine types.NamespacedName
}

// quarantineJSON is how the annotation has it.
type quarantineJSON struct {
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
	Machine string    `json:"machine"`
}

// String is the value of the annotation: {"reason":"HostError","since":"2026-01-02T15:04:05Z","machine":"tenant-a/gpu-x7f2k"}.
func (q Quarantine) String() string {
	// It fails for years after 9999 only.
	text, _ := json.Marshal(quarantineJSON{Reason: q.Reason, Since: q.Since.UTC().Truncate(time.Second), Machine: q.Machine.String()})
	return string(text)
}

// QuarantineOf reads the annotation of a host. It reports false if there is none, or one that a person has written.
func QuarantineOf(host *bmov1alpha1.BareMetalHost) (Quarantine, bool) {
	var read quarantineJSON
	if err := json.Unmarshal([]byte(host.Annotations[v1alpha1.QuarantinedAnnotationKey]), &read); err != nil || read.Reason == "" ||
		read.Since.IsZero() {
		return Quarantine{}, false
	}
	namespace, name, found := strings.Cut(read.Machine, "/")
	if !found {
		return Quarantine{}, false
	}
	return Quarantine{Reason: read.Reason, Since: read.Since, Machine: types.NamespacedName{Namespace: namespace, Name: name}}, true
}

// quarantinedMessage does not say which Machine it was: tenants read it, and it may be another tenant's.
func quarantinedMessage(host *bmov1alpha1.BareMetalHost) string {
	why := host.Annotations[v1alpha1.QuarantinedAnnotationKey]
	if quarantine, ours := QuarantineOf(host); ours {
		why = fmt.Sprintf("%s, since %s", quarantine.Reason, quarantine.Since.UTC().Format(time.RFC3339))
	}
	return strings.TrimSuffix("is quarantined: "+why, ": ") + "; an operator who finds it well removes the annotation " +
		v1alpha1.QuarantinedAnnotationKey
}
