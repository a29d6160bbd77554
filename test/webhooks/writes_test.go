// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestProvidersWrites: with a provider's token nobody fills etcd by writing a Machine again and again: the API server
// answers that it is too much, and when to try again, before 20 MiB are written. Other providers, and everyone else, write
// on. Without the webhook there is no bound, so that servers join.
func TestProvidersWrites(t *testing.T) {
	const provider, other = "karpenter-metal3-provider", "system:serviceaccount:globex:karpenter-metal3-provider-globex"
	fleet(t)
	environment.Grant(t, "team-b", "provider-management.yaml")
	webhook := start(t, "")
	configure(t, webhook.address)
	rotate(t, "default", settings)
	webhook.await(t)
	awaitAsked(t)
	machine := parse[v1alpha1.Machine](t, "{metadata: {namespace: team-b, name: rewritten}, spec: {nodeTypeRef: {name: cpu}}}")
	create(t, machine)
	t.Cleanup(func() {
		if err := environment.Client.Delete(context.Background(), machine); err != nil {
			t.Error(err)
		}
	})
	// client-go would wait and try again.
	rewrite := func(user string, groups ...string) (status int, retryAfter, answer string) {
		t.Helper()
		config := rest.CopyConfig(environment.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
		connection, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"metadata": {"annotations": {"x": %q}}}`, strings.Repeat("x", 200<<10))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch,
			strings.TrimSuffix(config.Host, "/")+"/apis/karpenter.metal3.io/v1alpha1/namespaces/team-b/machines/rewritten",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/merge-patch+json")
		response, err := connection.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }() // it is read to the end
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, response.Header.Get("Retry-After"), string(text)
	}
	writes, status, retryAfter, answer := 0, http.StatusOK, "", ""
	for ; status == http.StatusOK && writes < 100; writes++ {
		status, retryAfter, answer = rewrite(provider)
	}
	if status != http.StatusTooManyRequests || retryAfter != "4" ||
		!strings.Contains(answer, provider+" has written 16 MiB, and may write 64 KiB") {
		t.Fatalf("write %d: %d, to be tried again after %q: %s", writes, status, retryAfter, answer[:min(len(answer), 500)])
	}
	t.Logf("write %d is refused: %s", writes, answer)
	for _, user := range []string{other, "an-administrator"} {
		if status, _, answer := rewrite(user, "system:masters"); status != http.StatusOK {
			t.Errorf("%s: %d %s", user, status, answer)
		}
	}
	webhook.kill(t)
	if status, _, answer := rewrite(provider); status != http.StatusOK {
		t.Errorf("without the webhook: %d %s", status, answer)
	}
}
