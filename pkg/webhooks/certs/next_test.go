// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var testSettings = Settings{Names: []string{"webhook.default.svc", "127.0.0.1"}, AuthorityLifetime: 1000 * time.Hour,
	Lifetime: 90 * time.Hour, Settle: time.Hour}

// accepted checks whether a client that trusts a bundle accepts what is served.
func accepted(data map[string][]byte, bundle []byte, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, name := range testSettings.Names {
		options := x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now}
		if _, err := parseBundle(data[corev1.TLSCertKey])[0].Verify(options); err != nil {
			return err
		}
	}
	return nil
}

// repeat calls next until it changes nothing, as the rotator does, which publishes what it has written.
func repeat(t *testing.T, data map[string][]byte, now time.Time, settings Settings) (map[string][]byte, time.Duration) {
	t.Helper()
	published := now
	for range 5 {
		after, wait, err := next(data, now, published, settings)
		if err != nil {
			t.Fatal(err)
		}
		if maps.EqualFunc(after, data, bytes.Equal) {
			return data, wait
		}
		data = after
	}
	t.Fatal("it is never content")
	return nil, 0
}

// Simulates years of rotations: a late replica always serves a certificate that late clients trust.
func TestNextForYears(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	data, wait := repeat(t, nil, now, testSettings)
	published := now
	authorities, certificates := 1, 1
	for end := now.Add(10000 * time.Hour); now.Before(end); {
		if again, _, err := next(data, now, published, testSettings); err != nil || !maps.EqualFunc(again, data, bytes.Equal) {
			t.Fatalf("%s: it is never content (%v)", now, err)
		}
		now = now.Add(wait + time.Second)
		after, nextWait, err := next(data, now, published, testSettings)
		if err != nil {
			t.Fatal(err)
		}
		// What is served now, after the change, by clients that have not heard of the change, and the other way round.
		for what, err := range map[string]error{
			"new certificate, old bundle": accepted(after, data[CAKey], now),
			"old certificate, new bundle": accepted(data, after[CAKey], now),
			"new certificate, new bundle": accepted(after, after[CAKey], now),
		} {
			if err != nil {
				t.Fatalf("%s: %s is not accepted: %v", now, what, err)
			}
		}
		if count := len(parseBundle(after[CAKey])); count > 2 {
			t.Fatalf("%s: %d authorities are trusted", now, count)
		}
		if !bytes.Equal(after[caPrivateKey], data[caPrivateKey]) {
			authorities++
			published = now
		}
		if !bytes.Equal(after[corev1.TLSCertKey], data[corev1.TLSCertKey]) {
			certificates++
		}
		data, wait = after, nextWait
	}
	if authorities < 10 || authorities > 20 || certificates < 100 || certificates > 250 {
		t.Errorf("%d authorities and %d certificates in 10,000 hours", authorities, certificates)
	}
}

func TestNextRepairs(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good, _ := repeat(t, nil, now, testSettings)
	other, _ := repeat(t, nil, now, testSettings)
	for name, tc := range map[string]struct {
		reason string
		change func(map[string][]byte)
		later  time.Duration
		// keepsBundle tells that clients need not hear of anything.
		keepsBundle bool
	}{
		"NoKey": {reason: "it cannot be served", change: func(d map[string][]byte) { delete(d, corev1.TLSPrivateKeyKey) }, keepsBundle: true},
		"Garbage": {reason: "it has invalid data", keepsBundle: true,
			change: func(d map[string][]byte) { d[corev1.TLSCertKey] = []byte("x") }},
		"Foreign": {reason: "no client trusts it", change: func(d map[string][]byte) {
			d[corev1.TLSCertKey], d[corev1.TLSPrivateKeyKey] = other[corev1.TLSCertKey], other[corev1.TLSPrivateKeyKey]
		}, keepsBundle: true},
		"NoAuthority": {reason: "nothing can be signed", change: func(d map[string][]byte) { delete(d, CAKey) }},
		"WrongKey":    {reason: "nothing can be signed", change: func(d map[string][]byte) { d[caPrivateKey] = other[caPrivateKey] }},
		"LongAsleep":  {reason: "everything has expired", later: 5000 * time.Hour},
		"CertExpired": {reason: "it was not renewed", later: 200 * time.Hour, keepsBundle: true},
		"BundleAppend": {reason: "garbage among the authorities",
			change: func(d map[string][]byte) { d[CAKey] = append([]byte("x\n"), d[CAKey]...) }},
	} {
		t.Run(name, func(t *testing.T) {
			data := maps.Clone(good)
			if tc.change != nil {
				tc.change(data)
			}
			then := now.Add(tc.later)
			after, wait := repeat(t, data, then, testSettings)
			if wait <= 0 {
				t.Fatalf("%s: wait %s", tc.reason, wait)
			}
			if err := accepted(after, after[CAKey], then); err != nil {
				t.Errorf("%s: it is still not accepted: %v", tc.reason, err)
			}
			if tc.keepsBundle && !bytes.Equal(after[CAKey], good[CAKey]) {
				t.Errorf("%s: clients have to hear of another authority for nothing", tc.reason)
			}
		})
	}
	renamed := testSettings
	renamed.Names = []string{"elsewhere"}
	after, _ := repeat(t, good, now, renamed)
	if !hasNames(parseBundle(after[corev1.TLSCertKey])[0], renamed.Names) {
		t.Error("the server has another name now")
	}
}
