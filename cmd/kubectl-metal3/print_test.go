// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/charmbracelet/x/ansi"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestFit: lines of a table are no longer than a terminal, unless the heads are, and all that was in its cells is there.
func TestFit(t *testing.T) {
	list := listing{columns: columns("Severity", "Object", "Problem", "Remedy", "More*")}
	issues := view.New(fleet()).Issues()
	for _, issue := range issues {
		list.add(issue, string(issue.Severity), issue.Object, issue.Problem, issue.Remedy, "not shown")
	}
	const heads = len("SEVERITY   OBJECT   PROBLEM   REMEDY")
	for width := 1; width < 400; width += 3 {
		var out strings.Builder
		if err := printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(fit(list.table(nil), false, width), &out); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if longest := max(width, heads); ansi.StringWidth(strings.TrimRight(line, " \n")) > longest {
				t.Errorf("%d characters wide, it has a line of %d: %s", width, len(line), line)
			}
		}
	}
	// What is wrapped is all there, and words are whole where there is room for them.
	for width, between := range map[int]string{110: " ", 60: ""} {
		var remedies []string
		for _, row := range fit(list.table(nil), false, width).Rows {
			remedies = append(remedies, strings.Fields(row.Cells[3].(string))...)
		}
		for _, issue := range issues {
			if remedy := strings.ReplaceAll(issue.Remedy, " ", between); !strings.Contains(strings.Join(remedies, between), remedy) {
				t.Errorf("%d characters wide, %q is not in %q", width, issue.Remedy, remedies)
			}
		}
	}
}

// TestTerminal: on a terminal, a table is as wide as that; TestGolden has it as a program gets it.
func TestTerminal(t *testing.T) {
	term := onTerminal(t, 120, 40, "issues", "--snapshot", fileOf(t, fleet()))
	term.until(t, "SEVERITY", "Info")
	for range term.drawn { // until it has ended
	}
	_ = term.program.Wait() // its exit code says that there are issues
	golden(t, "issues-terminal", "$ kubectl metal3 issues\n"+term.text())
}

// TestWatch: after the list comes what is new or has changed, and nothing else.
func TestWatch(t *testing.T) { synctest.Test(t, testWatch) }

func testWatch(t *testing.T) {
	management := cluster(followable)
	ctx, interrupt := context.WithCancel(t.Context())
	printed, out := io.Pipe()
	o := &options{IOStreams: genericiooptions.IOStreams{Out: out, ErrOut: io.Discard}, management: genericclioptions.NewConfigFlags(true),
		connect: func(*genericclioptions.ConfigFlags, string) (client.WithWatch, error) { return management, nil }}
	ended := make(chan int, 1)
	go func() {
		ended <- o.run(ctx, []string{"machines", "-w", "-o", "custom-columns=NAME:.metadata.name,PHASE:.phase"})
		out.Close()
	}()
	lines := bufio.NewScanner(printed)
	next := func() string {
		lines.Scan()
		return strings.Join(strings.Fields(lines.Text()), " ")
	}
	for _, want := range []string{"NAME PHASE", "default-late Provisioned", "default-new Provisioning", "default-x7f2k Joined",
		"waiting Pending"} {
		if got := next(); got != want {
			t.Errorf("it begins with %q, want %q", got, want)
		}
	}
	for _, phase := range []v1alpha1.MachinePhase{v1alpha1.MachineClaiming, v1alpha1.MachineProvisioning} {
		machine := &v1alpha1.Machine{}
		if err := management.Get(ctx, client.ObjectKey{Namespace: "acme", Name: "waiting"}, machine); err != nil {
			t.Fatal(err)
		}
		machine.Status.Phase = phase
		if err := management.Update(ctx, machine); err != nil {
			t.Fatal(err)
		}
		if got, want := next(), "waiting "+string(phase); got != want {
			t.Errorf("after a change it prints %q, want %q", got, want)
		}
	}
	interrupt()
	for lines.Scan() {
		t.Errorf("interrupted, it prints %q", lines.Text())
	}
	if code := <-ended; code != 0 {
		t.Errorf("interrupted, it ends with exit code %d", code)
	}
}
