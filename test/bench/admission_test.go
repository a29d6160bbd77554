// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

var (
	// admissions is how many requests are sent, at admissionRate per second.
	admissions    = 15000
	admissionRate = 1000
	// fleetSize is the number of servers.
	fleetSize = 10000
)

// BenchmarkAdmission sends 1,000 admission requests for Machines per second to the webhook, with 10,000 inspected servers. A
// third of the Machines name a type, a third ask for resources and a rack, and a third are pinned. Requests are sent at
// their time whether or not earlier ones have been answered, and the time of an answer counts from when the request was
// due. It reports, beside the rate that was reached (req/s) and the webhook's resident memory (MiB):
//
//	ready-s                  from the start of the webhook until it is ready
//	p50-ms, p99-ms, max-ms   until the answer
func BenchmarkAdmission(b *testing.B) {
	for b.Loop() {
		cluster := management.New(b, nil)
		cluster.CreateInspectedHosts(b, fleetSize)
		manager := cluster.StartManager(b)
		awaitTypes(b, cluster, fleetSize)
		settle(b, manager)
		begin := time.Now()
		webhook := cluster.StartWebhook(b)
		ready := time.Since(begin)
		var reviews [][]byte
		for n := range admissions {
			reviews = append(reviews, review(b, n))
		}
		send(b, webhook, reviews[:admissionRate]) // connections and caches
		took, elapsed := send(b, webhook, reviews)
		slices.Sort(took)
		b.ReportMetric(ready.Seconds(), "ready-s")
		b.ReportMetric(float64(len(took))/elapsed.Seconds(), "req/s")
		b.ReportMetric(milliseconds(took[len(took)/2]), "p50-ms")
		b.ReportMetric(milliseconds(took[len(took)*99/100]), "p99-ms")
		b.ReportMetric(milliseconds(took[len(took)-1]), "max-ms")
		b.ReportMetric(webhook.Metrics(b).Resident()/(1<<20), "MiB")
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// awaitTypes waits until the manager has made the NodeTypes and counted their servers.
func awaitTypes(b *testing.B, cluster *management.Cluster, servers int) {
	b.Helper()
	poll.Eventually(b, "the NodeTypes have their servers", func(ctx context.Context) error {
		list, total := &v1alpha1.NodeTypeList{}, 0
		if err := cluster.Client.List(ctx, list); err != nil {
			return err
		}
		for i := range list.Items {
			total += int(list.Items[i].Status.Capacity.Total)
		}
		if total != servers {
			return fmt.Errorf("they have %d of %d", total, servers)
		}
		return nil
	})
}

// review is the n-th request, as the API server sends it.
func review(b *testing.B, n int) []byte {
	machine := management.Machine(n)
	switch n % 3 {
	case 1:
		machine.Spec.NodeTypeRef = nil
		machine.Spec.Resources = env.Resources("nvidia.com/gpu", "8", "cpu", "16")
		machine.Spec.Requirements = []corev1.NodeSelectorRequirement{{Key: "rack", Operator: corev1.NodeSelectorOpIn,
			Values: []string{fmt.Sprintf("rack-%04d", n%(fleetSize/20))}}}
	case 2:
		machine.Spec.Properties = map[string]string{v1alpha1.PropertyServerName: fmt.Sprintf("server-%05d", n%fleetSize), "team": "a"}
		machine.Spec.NodeTypeRef.Name = fmt.Sprintf("type-%d", n%fleetSize%10)
	}
	machine.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine"}
	raw, err := json.Marshal(machine)
	if err != nil {
		b.Fatal(err)
	}
	text, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID(fmt.Sprint(n)), Operation: admissionv1.Create, Namespace: machine.Namespace, Name: machine.Name,
			Kind:     metav1.GroupVersionKind{Group: v1alpha1.Group, Version: "v1alpha1", Kind: "Machine"},
			Resource: metav1.GroupVersionResource{Group: v1alpha1.Group, Version: "v1alpha1", Resource: "machines"},
			Object:   runtime.RawExtension{Raw: raw},
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	return text
}

// send sends the requests at their time and returns how long each answer took, and all of them together.
func send(b *testing.B, webhook *management.Webhook, reviews [][]byte) ([]time.Duration, time.Duration) {
	took := make([]time.Duration, len(reviews))
	var answers sync.WaitGroup
	var failed sync.Once
	begin := time.Now()
	for n := range reviews {
		due := begin.Add(time.Duration(n) * time.Second / time.Duration(admissionRate))
		if wait := time.Until(due); wait > 0 {
			pass(b, wait)
		}
		answers.Go(func() {
			if err := ask(b.Context(), webhook, reviews[n]); err != nil {
				failed.Do(func() { b.Errorf("asking the webhook, %v", err) })
			}
			took[n] = time.Since(due)
		})
	}
	answers.Wait()
	return took, time.Since(begin)
}

func ask(ctx context.Context, webhook *management.Webhook, review []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, webhook.URL+"/validate/machines", bytes.NewReader(review))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := webhook.Client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // the body was read completely
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	answer := admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("reading the answer %s, %w", body, err)
	}
	if answer.Response == nil || !answer.Response.Allowed {
		return fmt.Errorf("it refuses: %s", body)
	}
	return nil
}
