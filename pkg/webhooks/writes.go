// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// writtenAtOnce is how many bytes an account may write at once, for each replica: 1,500 claims take twice that.
	// writtenPerSecond makes up for it. In ten minutes, in which etcd keeps each revision, that is 53 MiB of its two GiB.
	writtenAtOnce, writtenPerSecond = 16 << 20, 64 << 10
)

// writesHandler bounds how much each provider writes: the API server bounds requests at a time, and not their size. It asks
// only about accounts with the right to write, so that they are few.
type writesHandler struct {
	clock    clock.PassiveClock
	lock     sync.Mutex
	accounts map[string]*rate.Limiter
}

// Handle implements admission.Handler.
func (h *writesHandler) Handle(_ context.Context, request admission.Request) admission.Response {
	h.lock.Lock()
	defer h.lock.Unlock()
	written := h.accounts[request.UserInfo.Username]
	if written == nil {
		written = rate.NewLimiter(writtenPerSecond, writtenAtOnce)
		h.accounts[request.UserInfo.Username] = written
	}
	if written.AllowN(h.clock.Now(), len(request.Object.Raw)) {
		return admission.Allowed("")
	}
	refused.WithLabelValues("rate").Inc()
	response := admission.Denied("")
	response.Result = &apierrors.NewTooManyRequests(fmt.Sprintf("%s has written %d MiB, and may write %d KiB a second from then on",
		request.UserInfo.Username, writtenAtOnce>>20, writtenPerSecond>>10), 1+len(request.Object.Raw)/writtenPerSecond).ErrStatus
	return response
}
