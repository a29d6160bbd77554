// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command download gets a program of Kubernetes from a mirror of its releases and checks its checksum. hack/build-tools.sh runs it if
// KUBERNETES_BINARIES is set. It uses only the standard library, so that it is compiled in seconds.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	// statusUnavailable is the exit status if the mirror does not have the file or does not answer. The caller then builds the program.
	statusUnavailable = 3
	// patience is how long the mirror may send nothing.
	patience = 30 * time.Second
)

// errUnavailable: the mirror does not have the file, or it does not answer in time.
var errUnavailable = errors.New("not available")

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: download MIRROR VERSION PROGRAM FILE, such as:",
			"download https://dl.k8s.io/release v1.36.5 kubectl bin/kubectl")
		os.Exit(2)
	}
	mirror, version, program, file := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	size, err := download(context.Background(), mirror, version, program, file, patience)
	switch {
	case errors.Is(err, errUnavailable):
		fmt.Fprintf(os.Stderr, "tools: %s is built here: %v\n", program, err)
		os.Exit(statusUnavailable)
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	fmt.Printf("tools: %s %s downloaded, %d MiB, checksum verified\n", program, version, size>>20)
}

// download writes the program to the file, as an executable, if its content has the checksum that the mirror has beside it. It returns
// the size in bytes. The file is complete or untouched, however the download ends.
func download(ctx context.Context, mirror, version, program, file string, patience time.Duration) (int64, error) {
	address, err := url.Parse(mirror)
	if err != nil || (address.Scheme != "https" && address.Scheme != "http") || address.Host == "" {
		return 0, fmt.Errorf("KUBERNETES_BINARIES is %q: it must be the http or https address of a mirror, such as "+
			"https://dl.k8s.io/release", mirror)
	}
	address = address.JoinPath(version, "bin", "linux", runtime.GOARCH, program)
	var checksum strings.Builder
	if _, err := fetch(ctx, address.String()+".sha256", &checksum, patience); err != nil {
		return 0, err
	}
	// The official files have only the digest; sha256sum writes the name of the file behind it.
	want, _, _ := strings.Cut(strings.TrimSpace(checksum.String()), " ")
	if digest, err := hex.DecodeString(want); err != nil || len(digest) != sha256.Size {
		return 0, fmt.Errorf("%s.sha256 has no SHA-256 digest", address)
	}
	partial, err := os.CreateTemp(filepath.Dir(file), ".download-*")
	if err != nil {
		return 0, fmt.Errorf("creating the file, %w", err)
	}
	defer func() { _ = os.Remove(partial.Name()) }()
	defer func() { _ = partial.Close() }()
	hash := sha256.New()
	size, err := fetch(ctx, address.String(), io.MultiWriter(partial, hash), patience)
	if err != nil {
		return 0, err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); !strings.EqualFold(got, want) {
		return 0, fmt.Errorf("%s has the SHA-256 checksum %s, and %s.sha256 says %s: do not use this mirror, or build from source "+
			"without KUBERNETES_BINARIES", address, got, address, want)
	}
	if err := partial.Chmod(0o755); err != nil {
		return 0, fmt.Errorf("making %s executable, %w", file, err)
	}
	if err := partial.Close(); err != nil {
		return 0, fmt.Errorf("writing %s, %w", file, err)
	}
	if err := os.Rename(partial.Name(), file); err != nil {
		return 0, fmt.Errorf("writing %s, %w", file, err)
	}
	return size, nil
}

// fetch copies what the address has. It gives up after the server has sent nothing for the time of patience.
func fetch(ctx context.Context, address string, to io.Writer, patience time.Duration) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(patience, cancel)
	defer silence.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, fmt.Errorf("reading %s, %w", address, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, unavailable(ctx, err, patience)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%w: GET %s: %s", errUnavailable, address, response.Status)
	}
	size, err := io.Copy(to, &impatientReader{response.Body, silence, patience})
	if err != nil {
		return 0, unavailable(ctx, fmt.Errorf("GET %s: %w", address, err), patience)
	}
	return size, nil
}

func unavailable(ctx context.Context, err error, patience time.Duration) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w: nothing came for %s", errUnavailable, err, patience)
	}
	return fmt.Errorf("%w: %w", errUnavailable, err)
}

// impatientReader starts the timer again with every byte that comes.
type impatientReader struct {
	io.Reader
	silence  *time.Timer
	patience time.Duration
}

func (r *impatientReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.silence.Reset(r.patience)
	}
	return n, err
}
