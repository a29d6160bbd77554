// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// QuarantinedAnnotation keeps a host out of the pool until somebody takes it away: only a person can tell that a server
// is well which a Machine was given up on. The manager writes it with the text of Quarantine; an operator may write it
// too, with any text. It never touches a Machine that has the host.
const QuarantinedAnnotation = v1alpha1.Group + "/quarantined"

// Quarantine is why, since when and because of which Machine a host is kept out of the pool.
type Quarantine struct {
	// Reason is the reason of the Machine's condition GivenUp.
	Reason string
	// Since is when the Machine was given up, to the second.
	Since time.Time
	// Machine that was given up.
	Machine types.NamespacedName
}

// String is the value of the annotation: "HostError, since 2026-01-02T15:04:05Z, machine tenant-a/gpu-x7f2k".
func (q Quarantine) String() string {
	return fmt.Sprintf("%s, since %s, machine %s", q.Reason, q.Since.UTC().Format(time.RFC3339), q.Machine)
}

// QuarantineOf reads the annotation of a host. It reports false if there is none, or one that people have written.
func QuarantineOf(host *bmov1alpha1.BareMetalHost) (Quarantine, bool) {
	parts := strings.Split(host.Annotations[QuarantinedAnnotation], ", ")
	if len(parts) != 3 {
		return Quarantine{}, false
	}
	since, err := time.Parse("since "+time.RFC3339, parts[1])
	namespace, name, found := strings.Cut(strings.TrimPrefix(parts[2], "machine "), "/")
	if err != nil || !found || !strings.HasPrefix(parts[2], "machine ") {
		return Quarantine{}, false
	}
	return Quarantine{Reason: parts[0], Since: since, Machine: types.NamespacedName{Namespace: namespace, Name: name}}, true
}

// quarantinedMessage does not say which Machine it was: tenants read it, and it may be another tenant's.
func quarantinedMessage(host *bmov1alpha1.BareMetalHost) string {
	why := host.Annotations[QuarantinedAnnotation]
	if quarantine, ours := QuarantineOf(host); ours {
		why = fmt.Sprintf("%s, since %s", quarantine.Reason, quarantine.Since.UTC().Format(time.RFC3339))
	}
	return strings.TrimSuffix("is quarantined: "+why, ": ") + "; an operator who finds it well removes the annotation " + QuarantinedAnnotation
}
