// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Versions runs the main journeys on clusters of other versions of Kubernetes than all other tests: for each pair of a management cluster
// and a tenant cluster, tests of test/e2e and test/podgroups on sandboxes of them. One pair has the test of test/minorupgrade, too.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
)

// pairs are the minor versions that are tested, MANAGEMENT/TENANT. All other tests run on the version of tools/cluster.
var pairs = []string{"1.35/1.36", "1.36/1.37", "1.37/1.34", "1.37/1.35", "1.37/1.36", "1.37/1.37"}

// journeys are the tests of test/e2e that are run: a pod gets a server and gives it back, a static pool, drift, DRA and the webhook.
var journeys = []string{
	"TestReleaseDeletedNodeClaim", "TestStaticPool", "TestDriftReplacesFullPool", "TestDRAClaimSelectsNodeType", "TestWebhookDenies",
}

// laterJourneys are for a tenant of 1.36 and later: the test of test/podgroups, and the tests of test/e2e for extended resources of
// drivers, and for shared and partitioned devices.
var laterJourneys = []string{"TestPodGroup", "TestDRAExtendedResource", "TestDRASharedDevices"}

// upgradeJourney is the test of test/minorupgrade, which upgrades the tenant of upgradePair to the next version, the newest.
const (
	upgradeJourney = "TestMinorUpgrade"
	upgradePair    = "1.37/1.36"
)

func main() {
	text := flag.String("pairs", "", `pairs of minor versions, MANAGEMENT/TENANT, separated by commas; "turn" for that of the day; empty for `+
		strings.Join(pairs, ","))
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	chosen, err := choose(*text, time.Now())
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
	var failed []string
	for _, pair := range chosen {
		began := time.Now()
		err := test(ctx, pair)
		if ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "error: interrupted")
			os.Exit(1)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "error: testing %s, %v\n", pair, err)
			failed = append(failed, pair)
		}
		fmt.Printf("=== %s has taken %s\n", pair, time.Since(began).Round(time.Second))
	}
	if len(failed) > 0 {
		fmt.Fprintf(os.Stderr, "error: failed on %d of %d pairs: %s\n", len(failed), len(chosen), strings.Join(failed, ", "))
		os.Exit(1)
	}
}

// choose returns the pairs that the flag asks for.
func choose(text string, now time.Time) ([]string, error) {
	switch text {
	case "":
		return pairs, nil
	case "turn":
		days := int(now.Unix() / int64((24 * time.Hour).Seconds()))
		return pairs[days%len(pairs):][:1], nil
	}
	chosen := strings.Split(text, ",")
	for _, pair := range chosen {
		if !slices.Contains(pairs, pair) {
			return nil, fmt.Errorf("-pairs has %q: known are %s, and turn", pair, strings.Join(pairs, ", "))
		}
	}
	return chosen, nil
}

// test runs the tests on a pair.
func test(ctx context.Context, pair string) error {
	management, tenant, _ := strings.Cut(pair, "/")
	fmt.Printf("=== %s: the management cluster is of Kubernetes %s, and the tenant of %s\n", pair, management, tenant)
	tests, packages := journeys, []string{"./test/e2e"}
	if version.MustParseGeneric(tenant).AtLeast(version.MajorMinor(1, 36)) {
		tests, packages = append(slices.Clone(tests), laterJourneys...), append(packages, "./test/podgroups")
	}
	if pair == upgradePair {
		tests, packages = append(slices.Clone(tests), upgradeJourney), append(packages, "./test/minorupgrade")
	}
	arguments := append([]string{"run", "./test/run", "-p", "1", "-flags",
		"-vet=off -count=1 -timeout=30m -run=^(" + strings.Join(tests, "|") + ")$"}, packages...)
	return run(ctx, []string{sandbox.ManagementKubernetesVariable + "=" + management, sandbox.TenantKubernetesVariable + "=" + tenant},
		"go", arguments...)
}

// run runs a command. SIGTERM lets tests stop the programs that they have started.
func run(ctx context.Context, environment []string, name string, arguments ...string) error {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Env = append(os.Environ(), environment...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	if err := command.Run(); err != nil {
		return fmt.Errorf("running %s %s, %w", name, arguments[0], err)
	}
	return nil
}
