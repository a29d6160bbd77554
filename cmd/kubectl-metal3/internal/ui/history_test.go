// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/fleettest"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestTenantsBefore: the page of a server has who had it, from the source or as it is read for each request.
func TestTenantsBefore(t *testing.T) {
	const target = "/token/server/metal3-system/server-0014"
	snapshot := fleettest.New(40)
	snapshot.Management.HostUsages = []v1alpha1.HostUsage{{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3-system",
		Name: "server-0014"},
		Spec: v1alpha1.HostUsageSpec{Uses: []v1alpha1.HostUse{{TenantCluster: "hooli",
			Machine: v1alpha1.MachineReference{Namespace: "hooli", Name: "m"},
			Start:   metav1.NewMicroTime(fleettest.Now.Add(-5 * time.Hour)),
			End:     ptr.To(metav1.NewMicroTime(fleettest.Now.Add(-2 * time.Hour)))}}}}}
	content := get(t, New(view.Still(snapshot), Options{Token: token, Still: true}), target, nil).Body.String()
	if !strings.Contains(content, "hooli/hooli</th>") || !strings.Contains(content, ">3h</td>") {
		t.Error("what a snapshot has of it is not there")
	}

	reads, fails := 0, false
	screen := New(fleettest.NewChanging(fleettest.New(40)), Options{Token: token, History: func(_ context.Context,
		name string) ([]view.Use, error) {
		if reads++; fails {
			return nil, errors.New("you may not list <hostusages>")
		}
		return []view.Use{{Server: name, Tenant: fmt.Sprintf("tenant-%d", reads), Start: metav1.NewTime(fleettest.Now),
			End: &metav1.Time{Time: fleettest.Now}}}, nil
	}})
	for range 2 * maxPages {
		get(t, screen, target, nil)
		get(t, screen, fmt.Sprintf("/token/server/metal3-system/server-%04d", reads%40), nil)
	}
	before := reads
	if content := get(t, screen, target, nil).Body.String(); !strings.Contains(content, fmt.Sprintf("tenant-%d<", before+1)) {
		t.Error("it is not read again for a request")
	}
	screen.update()
	shown, err := screen.render(screen.present(), page{View: "server", Name: "metal3-system/server-0014"})
	if err != nil {
		t.Fatal(err)
	}
	if reads != before+1 || !strings.Contains(fmt.Sprint(shown.Slots[2].Parts), fmt.Sprintf("tenant-%d<", reads)) {
		t.Errorf("%d reads for a new version, or it does not show them", reads-before)
	}
	if len(screen.past) > maxPages {
		t.Errorf("%d servers are remembered", len(screen.past))
	}
	fails = true
	if content := get(t, screen, target, nil).Body.String(); !strings.Contains(content,
		"not known: you may not list &lt;hostusages&gt;") {
		t.Error("it does not say why it is not known")
	}
}
