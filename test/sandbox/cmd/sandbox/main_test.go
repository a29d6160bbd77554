// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

func TestCommands(t *testing.T) {
	fleetFile := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(fleetFile, []byte("servers: []\nracks: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	type want struct{ output, err string }
	cases := map[string]struct {
		reason string
		args   []string
		want   want
	}{
		"Help": {reason: "Without a subcommand, the help shows what there is.",
			want: want{output: "Show the processes of a running sandbox"}},
		"HelpOfUp":    {reason: "The help of up shows a fleet file.", args: []string{"up", "--help"}, want: want{output: "kind: Fleet"}},
		"UnknownFlag": {reason: "A wrong flag is named.", args: []string{"up", "--fleets", "x"}, want: want{err: "--fleets"}},
		"UnknownWord": {reason: "A wrong subcommand is named.", args: []string{"start"}, want: want{err: `"start"`}},
		"Argument":    {reason: "What has no meaning is not ignored.", args: []string{"up", "fleet.yaml"}, want: want{err: `"fleet.yaml"`}},
		"MissingFleet": {reason: "A missing fleet file is named.", args: []string{"up", "--fleet", "/no/such.yaml"},
			want: want{err: "/no/such.yaml"}},
		"BadFleet": {reason: "A bad fleet file is refused before anything is started.", args: []string{"up", "--fleet", fleetFile},
			want: want{err: `line 2: unknown field "racks"`}},
		"UpNoPrograms": {reason: "Programs are looked for beside this one; the test has none there.", args: []string{"up"},
			want: want{err: "make tools"}},
		"StatusNothing": {reason: "Scripts can tell by the exit code that none is running.", args: []string{"status"},
			want: want{err: "no sandbox is running"}},
		"DownNothing": {reason: "Where none is running, there is nothing to do.", args: []string{"down"},
			want: want{output: "no sandbox is running"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBEBUILDER_ASSETS", "")
			dir := filepath.Join(t.TempDir(), "sandbox")
			command := newCommand()
			var output bytes.Buffer
			command.SetOut(&output)
			command.SetErr(&output)
			command.SilenceErrors = true
			command.SetArgs(append(tc.args, "--dir", dir))
			err := command.ExecuteContext(t.Context())
			if tc.want.err == "" && err != nil {
				t.Fatalf("%s\n%v", tc.reason, err)
			}
			if tc.want.err != "" && (err == nil || !strings.Contains(err.Error(), tc.want.err)) {
				t.Fatalf("%s\nerror is %v, want one with %q", tc.reason, err, tc.want.err)
			}
			if !strings.Contains(output.String(), tc.want.output) {
				t.Errorf("%s\noutput does not have %q:\n%s", tc.reason, tc.want.output, &output)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("%s\nthe directory was made: %v", tc.reason, err)
			}
		})
	}
}

func TestReferenceFleet(t *testing.T) {
	servers, err := fleet.Reference()
	if err != nil {
		t.Fatal(err)
	}
	if len(servers) != 6 {
		t.Errorf("the reference fleet has %d servers, want 6", len(servers))
	}
}

func TestPrintReport(t *testing.T) {
	report := sandbox.Report{
		PID: 10,
		Processes: []sandbox.ProcessReport{
			{Name: "sandbox", PID: 10, Memory: 50 << 20, Uptime: 90 * time.Second},
			{Name: "etcd", PID: 11, Memory: 60 << 20, Uptime: 80 * time.Second, LogFile: "/s/log/etcd.log"},
		},
		Kubeconfigs: sandbox.KubeconfigsIn("/s"), Screen: "http://127.0.0.1:8042/token/",
	}
	var output bytes.Buffer
	if err := printReport(&output, report); err != nil {
		t.Fatal(err)
	}
	want := `PROCESS   PID   MEMORY   UPTIME   LOG
sandbox   10    50Mi     90s      
etcd      11    60Mi     80s      /s/log/etcd.log
total           110Mi             

management cluster   /s/management.kubeconfig
tenant cluster       /s/tenant.kubeconfig
fleet in a browser   http://127.0.0.1:8042/token/
`
	if diff := cmp.Diff(want, output.String()); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}
