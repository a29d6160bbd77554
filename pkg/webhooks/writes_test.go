// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
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
	all, err := Handlers(&cluster.Cluster{}, clock.PassiveClock(now))
	if err != nil {
		t.Fatal(err)
	}
	writes, fromAPIServer := all["/validate/writes"], context.WithValue(t.Context(), clientKey{}, "")
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
		response := writes.Handle(fromAPIServer, asked)
		if response.Allowed != step.allowed || !step.allowed && (response.Result.Code != http.StatusTooManyRequests ||
			response.Result.Details.RetryAfterSeconds < 1) {
			t.Errorf("%s: allowed is %v: %v", step.reason, response.Allowed, response.Result)
		}
	}
	forged := request(admissionv1.Update, "", "")
	forged.UserInfo.Username, forged.Object.Raw = "c", make([]byte, writtenAtOnce)
	fromAPod := context.WithValue(t.Context(), clientKey{}, "192.0.2.7")
	if response := writes.Handle(fromAPod, forged); !response.Allowed {
		t.Errorf("the first bytes of an account are refused: %v", response.Result)
	}
	if response := writes.Handle(fromAPod, forged); response.Allowed {
		t.Error("a client without a certificate has no bound")
	}
	if response := writes.Handle(fromAPIServer, forged); !response.Allowed {
		t.Errorf("a client without a certificate has used up what an account may write: %v", response.Result)
	}
	forged.Object.Raw = nil
	for n := range 2 * accountsLimit {
		forged.UserInfo.Username = fmt.Sprint(n)
		writes.Handle(fromAPod, forged)
	}
	handler := writes.(timed).Handler.(*writesHandler)
	if len(handler.accounts) > accountsLimit {
		t.Errorf("%d accounts are counted, and at most %d can be: a client that names more fills the memory",
			len(handler.accounts), accountsLimit)
	}
}
