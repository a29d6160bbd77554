// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// metricsAreForReaders reads the metrics of a program, which runs with the flags and rights of the chart, as clients with and without the
// right to.
func metricsAreForReaders(t *testing.T, name, address string) {
	t.Helper()
	namespace := environment.Namespace(t)
	reader, other := tokenFor(t, namespace, "prometheus"), tokenFor(t, namespace, "other")
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "reader-"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "karpenter-metal3-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "prometheus"}}}
	if err := environment.Client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Client.Delete(context.Background(), binding); err != nil {
			t.Error(err)
		}
	})
	url := address + "/metrics"
	poll.Eventually(t, "metrics of "+name, func(ctx context.Context) error {
		status, text, err := scrape(ctx, "https://"+url, reader)
		if err == nil && (status != http.StatusOK || !strings.Contains(text, "go_goroutines")) {
			err = fmt.Errorf("got %d: %.200s", status, text)
		}
		return err
	})
	for reason, tc := range map[string]struct{ url, token string }{
		"a pod without a token":        {"https://" + url, ""},
		"a token that is none":         {"https://" + url, "x"},
		"an account without the right": {"https://" + url, other},
		"the right token, without TLS": {"http://" + url, reader},
		"a token that was changed":     {"https://" + url, reader + "x"},
	} {
		if status, text, _ := scrape(t.Context(), tc.url, tc.token); status == http.StatusOK || strings.Contains(text, "go_goroutines") {
			t.Errorf("%s: %s reads the metrics: %d", name, reason, status)
		}
	}
}

// tokenFor makes a service account and returns a token of it.
func tokenFor(t *testing.T, namespace, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := environment.Client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	return requestToken(t, account)
}

func requestToken(t *testing.T, account *corev1.ServiceAccount) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if err := environment.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

func scrape(ctx context.Context, url, token string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // as in the ServiceMonitor
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }() // it is read to the end
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}
