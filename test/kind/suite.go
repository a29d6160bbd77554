// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/jstemmer/go-junit-report/v2/junit"
	"github.com/jstemmer/go-junit-report/v2/parser/gotest"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/images"
)

// PodImage is an image that the servers have.
var PodImage = images.Reference(images.Workload)

// variables are those of the environment of test/e2e here, as docs/testing.md describes it.
func (w *Environment) variables() []string {
	move := "docker exec " + w.state.Management.controlPlane() + " mv /etc/kubernetes/%skube-apiserver.yaml /etc/kubernetes/%s"
	variables := []string{
		"E2E_MANAGEMENT_KUBECONFIG=" + w.ManagementKubeconfig(), "E2E_TENANT_KUBECONFIG=" + w.TenantKubeconfig(),
		"E2E_FLEET=" + w.Fleet(), "E2E_POD_IMAGE=" + PodImage, "TEST_PATIENCE=" + cmp.Or(os.Getenv("TEST_PATIENCE"), "2"), // servers boot
		"E2E_MANAGEMENT_DOWN=" + fmt.Sprintf(move, "manifests/", ""), "E2E_MANAGEMENT_UP=" + fmt.Sprintf(move, "", "manifests/"),
		"E2E_RACK=" + w.state.Rack, "E2E_KIND=1",
	}
	if w.state.AllServers {
		variables = append(variables, "E2E_ALL_SERVERS=true")
	}
	return variables
}

// Test runs the tests of a package, which the expression selects, on the environment that is up. Their output is also in NAME.log of the
// folder logs, and their results are in NAME.xml beside it, in the format of JUnit.
func (w *Environment) Test(ctx context.Context, name, directory, tests string) error {
	log, err := os.Create(w.path("logs", name+".log"))
	if err != nil {
		return fmt.Errorf("making the log of the tests, %w", err)
	}
	defer func() { _ = log.Close() }()
	command := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-timeout=90m", "-run="+tests, directory)
	command.Dir = w.config.Repository
	command.Env = append(os.Environ(), w.variables()...)
	// A signal ends the test binary too, and not go alone.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	var output bytes.Buffer
	command.Stdout = io.MultiWriter(&output, log, w.config.Out)
	command.Stderr = command.Stdout
	err = command.Run()
	if unwritten := writeJUnit(w.path("logs", name+".xml"), output.Bytes()); unwritten != nil {
		return errors.Join(err, unwritten)
	}
	// The first line of the output may be a test's.
	count := func(result string) int { return bytes.Count(output.Bytes(), []byte("\n--- "+result+": ")) }
	w.say("%s: %d tests have passed, %d have failed, %d were skipped", directory, count("PASS"), count("FAIL"), count("SKIP"))
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("running %s, %w", directory, context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("tests of %s have failed: %s has their output", directory, log.Name())
	case count("PASS") == 0:
		return fmt.Errorf("no test of %s has passed: %q selects none, or all were skipped", directory, tests)
	}
	return nil
}

// writeJUnit writes the results of tests to a file, out of what go test -v has printed.
func writeJUnit(path string, output []byte) error {
	report, err := gotest.NewParser().Parse(bytes.NewReader(output))
	if err != nil {
		return fmt.Errorf("reading the results of the tests, %w", err)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("making the file of the results, %w", err)
	}
	results := junit.CreateFromReport(report, "")
	return errors.Join(results.WriteXML(file), file.Close())
}
