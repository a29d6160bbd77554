// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
)

// TestUI serves a snapshot until it is interrupted, on the port that was named.
func TestUI(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fleet.json")
	content, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet().Save(content); err != nil {
		t.Fatal(err)
	}
	if err := content.Close(); err != nil {
		t.Fatal(err)
	}
	ports, err := freeport.Reserve(1)
	if err != nil {
		t.Fatal(err)
	}
	port := ports[0]
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	printed, out := io.Pipe()
	var problems bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, genericiooptions.IOStreams{Out: out, ErrOut: &problems}, []string{"ui", "--snapshot", file, "--port", fmt.Sprint(port)})
		out.Close()
	}()
	address, err := bufio.NewReader(printed).ReadString('\n')
	if err != nil {
		t.Fatalf("no address: exit code %d, %s", <-ended, problems.String())
	}
	address = strings.TrimSpace(address)
	if !strings.HasPrefix(address, fmt.Sprintf("http://127.0.0.1:%d/", port)) {
		t.Errorf("the address is %s", address)
	}
	answer, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || !strings.Contains(string(page), "server-07") || !strings.Contains(string(page), "snapshot of") {
		t.Errorf("the page is %s (%v)", page, err)
	}
	interrupt()
	if code := <-ended; code != 0 {
		t.Errorf("interrupted, it ends with exit code %d: %s", code, problems.String())
	}
	if _, err := http.Get(address); err == nil {
		t.Error("it answers after its end")
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// TestUIPort: a port that cannot be had is one sentence.
func TestUIPort(t *testing.T) {
	taken := listen(t)
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	for arguments, want := range map[string]string{
		fmt.Sprintf("ui --port %d", port): fmt.Sprintf("error: --port is %d, and another program listens on it: name another, or 0 for any "+
			"that is free\n", port),
		"ui --port 70000": "error: --port is 70000: it must be between 1 and 65535, or 0 for any that is free\n",
	} {
		if _, problems, code := execute(t, strings.Fields(arguments)...); code != exitError || problems != want {
			t.Errorf("%s: exit code %d, printed %q, want %q", arguments, code, problems, want)
		}
	}
}
