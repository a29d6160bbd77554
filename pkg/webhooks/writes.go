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
	// writtenPerSecond makes up for it. In ten minutes, in which etcd keeps each revision, that is 53 MiB of its two GiB.
	writtenAtOnce, writtenPerSecond = 16 << 20, 64 << 10
)

// writesKind stands in metrics for what writesHandler answers about.
const writesKind = "writes"

// clientKey is the key of the client in the context of a request. It is the address, or empty if a certificate shows that
// the client is the API server.
type clientKey struct{}

// account is a provider, as a client names it.
type account struct{ client, name string }

// accountsLimit is how many accounts are counted at a time. One that has its bytes again is not counted.
const accountsLimit = 10_000

// writesHandler bounds how much each provider writes: the API server bounds requests at a time, and not their size. It
// counts each client apart: without certificates, any client can name the account of a provider, and would use up the
// provider's bytes.
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
