// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// writtenAtOnce is how many bytes an account may write at once, for each replica: 1,500 claims take twice that.
	// writtenPerSecond refills it. In ten minutes, for which etcd keeps each revision, that is 53 MiB of its two GiB.
	writtenAtOnce, writtenPerSecond = 16 << 20, 64 << 10
)

// writesKind is the kind in the metrics of writesHandler.
const writesKind = "writes"

// clientKey is the context key for the client of a request. The value is its address, or empty if a certificate proves
// that the client is the API server.
type clientKey struct{}

// account is a provider by the name that a client gives.
type account struct{ client, name string }

// accountsLimit is how many accounts are tracked at a time. An account that has all its bytes again is not tracked.
const accountsLimit = 10_000

// writesHandler limits how many bytes each provider writes: the API server limits the number of requests, but not their
// size. It tracks each client separately. Without certificates, any client can name the account of a provider, and
// would use up the provider's bytes.
type writesHandler struct {
	clock    clock.PassiveClock
	lock     sync.Mutex
	accounts map[account]*rate.Limiter
}

// Handle implements admission.Handler.
func (h *writesHandler) Handle(ctx context.Context, request admission.Request) admission.Response {
	h.lock.Lock()
	defer h.lock.Unlock()
	client, _ := ctx.Value(clientKey{}).(string)
	key, now := account{client, request.UserInfo.Username}, h.clock.Now()
	written := h.accounts[key]
	if written == nil {
		if len(h.accounts) >= accountsLimit {
			maps.DeleteFunc(h.accounts, func(_ account, other *rate.Limiter) bool { return other.TokensAt(now) >= writtenAtOnce })
		}
		written = rate.NewLimiter(writtenPerSecond, writtenAtOnce)
		h.accounts[key] = written
	}
	if written.AllowN(now, len(request.Object.Raw)) {
		return admission.Allowed("")
	}
	refused.WithLabelValues("rate").Inc()
	response := admission.Denied("")
	response.Result = &apierrors.NewTooManyRequests(fmt.Sprintf("%s has written %d MiB, and may write %d KiB a second from then on",
		request.UserInfo.Username, writtenAtOnce>>20, writtenPerSecond>>10), 1+len(request.Object.Raw)/writtenPerSecond).ErrStatus
	return response
}
