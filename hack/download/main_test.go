// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestDownload(t *testing.T) {
	const content = "#!/bin/sh\n"
	digest := sha256.Sum256([]byte(content))
	right := hex.EncodeToString(digest[:])
	path := "/release/v1.36.5/bin/linux/" + runtime.GOARCH + "/kubectl"
	serve := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	// The server answers with its first bytes, and then with nothing until its client has gone.
	stall := func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(content[:1]))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	type want struct {
		content     string
		err         string
		unavailable bool
	}
	cases := map[string]struct {
		reason string
		files  map[string]http.HandlerFunc
		mirror string
		// patience is a minute by default: only a server that never goes on needs a short one.
		patience time.Duration
		want     want
	}{
		"Right": {reason: "A file with the right checksum replaces the old one.",
			files: map[string]http.HandlerFunc{path: serve(content), path + ".sha256": serve(right)},
			want:  want{content: content}},
		"NamedChecksum": {reason: "Mirrors made with sha256sum have the name of the file behind the digest.",
			files: map[string]http.HandlerFunc{path: serve(content), path + ".sha256": serve(right + "  kubectl\n")},
			want:  want{content: content}},
		"WrongChecksum": {reason: "A file with another content is never used, and no build hides it.",
			files: map[string]http.HandlerFunc{path: serve(content + "evil"), path + ".sha256": serve(right)},
			want:  want{content: "old", err: "checksum"}},
		"NoDigest": {reason: "A page of HTML is no checksum.",
			files: map[string]http.HandlerFunc{path: serve(content), path + ".sha256": serve("<html>")},
			want:  want{content: "old", err: "no SHA-256 digest"}},
		"MissingFile": {reason: "A program that the mirror does not have is built.",
			files: map[string]http.HandlerFunc{path + ".sha256": serve(right)},
			want:  want{content: "old", err: "404", unavailable: true}},
		"MissingChecksum": {reason: "A program without a checksum is built.",
			files: map[string]http.HandlerFunc{path: serve(content)},
			want:  want{content: "old", err: "404", unavailable: true}},
		"SlowAnswer": {reason: "A mirror that stops in the middle does not stop the build.",
			files: map[string]http.HandlerFunc{path: stall, path + ".sha256": serve(right)}, patience: 500 * time.Millisecond,
			want: want{content: "old", err: "nothing came for", unavailable: true}},
		"NoServer": {reason: "A mirror that does not answer does not stop the build.", mirror: "http://127.0.0.1:1/release",
			want: want{content: "old", err: "refused", unavailable: true}},
		"NoAddress": {reason: "A typo in the setting is named.", mirror: "yes",
			want: want{content: "old", err: `KUBERNETES_BINARIES is "yes"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			for path, handler := range tc.files {
				mux.HandleFunc(path, handler)
			}
			server := httptest.NewServer(mux)
			defer server.Close()
			mirror := tc.mirror
			if mirror == "" {
				mirror = server.URL + "/release"
			}
			file := filepath.Join(t.TempDir(), "kubectl")
			if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			patience := tc.patience
			if patience == 0 {
				patience = time.Minute
			}
			_, err := download(t.Context(), mirror, "v1.36.5", "kubectl", file, patience)
			if tc.want.err == "" && err != nil {
				t.Fatalf("%s\n%v", tc.reason, err)
			}
			if tc.want.err != "" && (err == nil || !strings.Contains(err.Error(), tc.want.err)) {
				t.Fatalf("%s\nerror is %v, want one with %q", tc.reason, err, tc.want.err)
			}
			if got := errors.Is(err, errUnavailable); got != tc.want.unavailable {
				t.Errorf("%s\nunavailable is %t, want %t: %v", tc.reason, got, tc.want.unavailable, err)
			}
			got, err := os.ReadFile(file)
			if err != nil || string(got) != tc.want.content {
				t.Errorf("%s\nthe file has %q (%v), want %q", tc.reason, got, err, tc.want.content)
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".download-*")); len(left) > 0 {
				t.Errorf("%s\nleft over: %v", tc.reason, left)
			}
			info, err := os.Stat(file)
			if tc.want.err == "" && (err != nil || info.Mode().Perm() != 0o755) {
				t.Errorf("%s\nthe mode is %v (%v), want 0755", tc.reason, info.Mode(), err)
			}
		})
	}
}
