// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
)

// playMetal3 takes every host one state further, as baremetal-operator would. It leaves a paused or detached host alone.
func (w *fixture) playMetal3() {
	w.t.Helper()
	for _, host := range w.hosts() {
		if hosts.WhyIgnored(&host) != "" {
			continue
		}
		before := host.DeepCopy()
		status := &host.Status.Provisioning
		switch status.State {
		case bmov1alpha1.StateAvailable:
			if host.Spec.Image != nil && host.Spec.Online {
				status.State = bmov1alpha1.StateProvisioning
			} else {
				host.Status.PoweredOn = host.Spec.Online
			}
		case bmov1alpha1.StateProvisioning:
			if host.Spec.Image == nil {
				status.State = bmov1alpha1.StateDeprovisioning
			} else if !w.hangs {
				status.State, status.Image = bmov1alpha1.StateProvisioned, *host.Spec.Image // it looks at the power next
			}
		case bmov1alpha1.StateProvisioned:
			if host.Spec.Image == nil {
				status.State = bmov1alpha1.StateDeprovisioning
			}
			host.Status.PoweredOn = host.Spec.Online
			w.reboot(before, &host)
		case bmov1alpha1.StateDeprovisioning:
			status.State, status.Image = bmov1alpha1.StateAvailable, bmov1alpha1.Image{}
		}
		if old := before.Status.Provisioning.State; status.State != old { // as recordStateBegin and recordStateEnd
			if metric := host.OperationMetricForState(old); metric != nil {
				metric.End = metav1.Now()
			}
			if metric := host.OperationMetricForState(status.State); metric != nil {
				*metric = bmov1alpha1.OperationMetric{Start: metav1.Now()}
			}
		}
		w.setHostStatus(before, &host)
	}
}

// reboot serves a request to reboot.
func (w *fixture) reboot(before, host *bmov1alpha1.BareMetalHost) {
	w.t.Helper()
	arguments, requested := host.Annotations[bmov1alpha1.RebootAnnotationPrefix]
	if !requested {
		return
	}
	w.reboots[host.Name] = append(w.reboots[host.Name], arguments)
	served := host.DeepCopy()
	delete(served.Annotations, bmov1alpha1.RebootAnnotationPrefix)
	if err := w.client.Patch(context.Background(), served, client.MergeFrom(host)); err != nil {
		w.t.Fatal(err)
	}
	before.ResourceVersion, host.ResourceVersion = served.ResourceVersion, served.ResourceVersion
}

func (w *fixture) setHostStatus(before, after *bmov1alpha1.BareMetalHost) {
	w.t.Helper()
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return
	}
	if err := w.client.Status().Patch(context.Background(), after, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}
