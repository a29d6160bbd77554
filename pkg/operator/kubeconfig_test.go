// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	clocktesting "k8s.io/utils/clock/testing"
)

// mounted is a kubeconfig in a Secret that is mounted: kubelet writes a new directory and then changes a link to it.
type mounted struct {
	t         *testing.T
	directory string
	cluster   *Cluster
}

func newMounted(t *testing.T, content string) *mounted {
	t.Helper()
	m := &mounted{t: t, directory: t.TempDir()}
	m.cluster = &Cluster{Name: "tenant cluster", Kubeconfig: filepath.Join(m.directory, "kubeconfig")}
	m.contains(content)
	if err := os.Symlink(filepath.Join("..data", "kubeconfig"), m.cluster.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	return m
}

// contains changes the content. Without any there is no file.
func (m *mounted) contains(content string) {
	m.t.Helper()
	version, err := os.MkdirTemp(m.directory, "..")
	if err != nil {
		m.t.Fatal(err)
	}
	if content != "" {
		if err := os.WriteFile(filepath.Join(version, "kubeconfig"), []byte(content), 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	link := filepath.Join(m.directory, "..data")
	if err := os.Symlink(version, link+"_tmp"); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(link+"_tmp", link); err != nil {
		m.t.Fatal(err)
	}
}

func TestKubeconfigChanges(t *testing.T) {
	const current = kubeconfig + "current-context: one\n"
	for name, tc := range map[string]struct {
		reason   string
		contents []string // "" for no file
		ends     bool     // after the last
		logged   []string // once each
	}{
		"Token": {"the old one may be refused", []string{strings.Replace(current, "token: t", "token: u", 1)}, true,
			[]string{"The kubeconfig has changed"}},
		"Server": {"the old one may be gone", []string{strings.Replace(current, "127.0.0.1:1", "127.0.0.2:1", 1)}, true,
			[]string{"The kubeconfig has changed"}},
		"Layout":       {"the same is written in another way", []string{"# comment\n" + current}, false, nil},
		"OtherContext": {"it is not used", []string{strings.Replace(current, "cluster: nowhere", "cluster: elsewhere", 1)}, false, nil},
		"Missing":      {"it may be being written", []string{"", "", current}, false, []string{"does not exist"}},
		"Garbage":      {"it may be being written", []string{"\tx", "\tx", current}, false, []string{"is not a kubeconfig"}},
		"MissingThenToken": {"it was being written", []string{"", strings.Replace(current, "token: t", "token: u", 1)}, true,
			[]string{"does not exist", "The kubeconfig has changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMounted(t, current)
			_, loaded, err := m.cluster.load()
			if err != nil {
				t.Fatal(err)
			}
			logs := &bytes.Buffer{}
			ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(logs))))
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			clk := clocktesting.NewFakeClock(time.Unix(0, 0))
			lasting := m.cluster.untilChanged(ctx, clk, loaded)
			// read returns once the file was read again, or the context has ended.
			read := func() {
				for !clk.HasWaiters() && lasting.Err() == nil {
					runtime.Gosched()
				}
			}
			read()
			for i, content := range tc.contents {
				if lasting.Err() != nil {
					t.Fatalf("%s: it ended before content %d", tc.reason, i)
				}
				m.contains(content)
				clk.Step(reloadPeriod)
				read()
			}
			if ended := lasting.Err() != nil; ended != tc.ends {
				t.Errorf("%s: it ended: %v", tc.reason, ended)
			}
			stop()
			<-lasting.Done()
			if got := strings.Count(logs.String(), "\n"); got != len(tc.logged) {
				t.Errorf("%s: %d lines are logged:\n%s", tc.reason, got, logs)
			}
			for _, want := range tc.logged {
				if !strings.Contains(logs.String(), want) || !strings.Contains(logs.String(), m.cluster.Kubeconfig) {
					t.Errorf("%s: the log does not say %q and the file:\n%s", tc.reason, want, logs)
				}
			}
		})
	}
}
