// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/web"
)

func TestMedia(t *testing.T) {
	media, err := startMedia(web.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := media.Close(); err != nil {
			t.Error(err)
		}
	}()
	image := media.Add("os.qcow2", []byte("abc"))
	// The example of FIPS 180.
	if want := "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; image.Checksum != want {
		t.Errorf("the checksum is %s, want %s", image.Checksum, want)
	}
	if !strings.HasSuffix(image.URL, "/os.qcow2") {
		t.Errorf("the URL is %s", image.URL)
	}
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := media.AddFile("file.qcow2", path)
	if err != nil {
		t.Fatal(err)
	}
	if file.Checksum != image.Checksum {
		t.Errorf("the same content has another checksum if it is in a file: %s", file.Checksum)
	}
	if _, err := media.AddFile("none.qcow2", path+".none"); err == nil {
		t.Error("a file that is not there is served")
	}
	ask := func(method, path string) *httptest.ResponseRecorder {
		recorder := httptest.NewRecorder()
		media.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return recorder
	}
	if got := ask(http.MethodHead, "/os.qcow2"); got.Header().Get("Content-Length") != "3" || media.Downloads("os.qcow2") != 0 {
		t.Errorf("asked for its size it answers %v, and counts %d downloads", got.Header(), media.Downloads("os.qcow2"))
	}
	if got := ask(http.MethodGet, "/os.qcow2"); got.Body.String() != "abc" || media.Downloads("os.qcow2") != 1 {
		t.Errorf("it serves %q, and counts %d downloads", got.Body, media.Downloads("os.qcow2"))
	}
	if got := ask(http.MethodGet, "/file.qcow2"); got.Body.String() != "abc" || media.Downloads("file.qcow2") != 1 {
		t.Errorf("of a file it serves %q, and counts %d downloads", got.Body, media.Downloads("file.qcow2"))
	}
	if got := ask(http.MethodGet, "/other.qcow2"); got.Code != http.StatusNotFound {
		t.Errorf("what is not there is answered with %d", got.Code)
	}
}

func TestMissing(t *testing.T) {
	err := Missing(t.TempDir())
	if err == nil {
		t.Fatal("an empty directory passes the check")
	}
	for _, part := range []string{"run `make ironic`", "program baremetal-operator is missing", "program rack is missing"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error lacks %q:\n%v", part, err)
		}
	}
}
