// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"net/http"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/cluster"
)

// TestWrites: an account may write so much at once, and then so much a second. It does not count for another, and what was refused does not
// count at all.
func TestWrites(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Unix(1000, 0))
	writes := Handlers(&cluster.Cluster{}, clock.PassiveClock(now))["/validate/writes"]
	const quarter = writtenAtOnce / 4
	for _, step := range []struct {
		reason  string
		account string
		passed  time.Duration
		bytes   int
		allowed bool
	}{
		{reason: "at once", account: "a", bytes: 3 * quarter, allowed: true},
		{reason: "all there is", account: "a", bytes: quarter, allowed: true},
		{reason: "one more", account: "a", bytes: 1},
		{reason: "another account", account: "b", bytes: 2 * quarter, allowed: true},
		{reason: "a second later", account: "a", passed: time.Second, bytes: writtenPerSecond, allowed: true},
		{reason: "a second later, too much", account: "a", passed: time.Second, bytes: writtenPerSecond + 1},
		{reason: "what was refused does not count", account: "a", bytes: writtenPerSecond, allowed: true},
		{reason: "much later, what may be written at once", account: "a", passed: time.Hour, bytes: writtenAtOnce, allowed: true},
		{reason: "and no more", account: "a", bytes: writtenPerSecond},
	} {
		now.SetTime(now.Now().Add(step.passed))
		asked := request(admissionv1.Update, "", "")
		asked.UserInfo.Username, asked.Object.Raw = step.account, make([]byte, step.bytes)
		response := writes.Handle(t.Context(), asked)
		if response.Allowed != step.allowed || !step.allowed && (response.Result.Code != http.StatusTooManyRequests ||
			response.Result.Details.RetryAfterSeconds < 1) {
			t.Errorf("%s: allowed is %v: %v", step.reason, response.Allowed, response.Result)
		}
	}
}
