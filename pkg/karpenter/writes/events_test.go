// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

type recording struct {
	manager.Manager
	recorder *record.FakeRecorder
}

func (r recording) GetEventRecorderFor(string) record.EventRecorder { return r.recorder }

func TestEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, object, event string
		want                  bool
	}{
		"Registered":  {"nobody else says it", "a", karpv1.ConditionTypeRegistered, true},
		"Launched":    {"ServerClaimed says which server", "a", karpv1.ConditionTypeLaunched, false},
		"ServerReady": {"there is an event that says why", "a", v1alpha1.ConditionServerReady, false},
		"Finalized":   {"core looks at an empty object when one is gone", "", "Finalized", false},
		"Finalizer":   {"a finalizer of an object that is there", "a", "Finalized", true},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := record.NewFakeRecorder(1)
			//lint:ignore SA1019 core takes no other
			Events(recording{recorder: recorder}).GetEventRecorderFor("karpenter").
				Event(&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: tc.object}}, "Normal", tc.event, "message")
			if got := len(recorder.Events) > 0; got != tc.want {
				t.Errorf("%s: published: %v", tc.reason, got)
			}
		})
	}
}
