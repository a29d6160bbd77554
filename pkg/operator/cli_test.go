// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

func TestFromEnvironment(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		args        []string
		environment map[string]string
		want        int
		problem     string
	}{
		"Default": {reason: "nothing is set", want: 1},
		"Environment": {reason: "the variable stands in for the flag", environment: map[string]string{"KARPENTER_METAL3_KUBE_API_BURST": "7"},
			want: 7},
		"FlagWins": {reason: "the command line is nearer", args: []string{"--kube-api-burst=9"},
			environment: map[string]string{"KARPENTER_METAL3_KUBE_API_BURST": "7"}, want: 9},
		"Empty": {reason: "an empty variable is an unset one", environment: map[string]string{"KARPENTER_METAL3_KUBE_API_BURST": ""}, want: 1},
		"Wrong": {reason: "names variable, value and flag", environment: map[string]string{"KARPENTER_METAL3_KUBE_API_BURST": "many"},
			problem: `environment variable KARPENTER_METAL3_KUBE_API_BURST has the wrong value "many" for --kube-api-burst`},
	} {
		t.Run(name, func(t *testing.T) {
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			burst := flags.Int("kube-api-burst", 1, "")
			if err := flags.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			err := FromEnvironment(flags, func(name string) (string, bool) { value, found := tc.environment[name]; return value, found })
			if tc.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tc.problem) {
					t.Errorf("%s: got %v, want %q", tc.reason, err, tc.problem)
				}
				return
			}
			if err != nil || *burst != tc.want {
				t.Errorf("%s: got %d, %v; want %d", tc.reason, *burst, err, tc.want)
			}
		})
	}
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: one, context: {cluster: c, user: u}}, {name: broken, context: {cluster: nowhere, user: u}}]
`

func TestRESTConfig(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, tc := range map[string]struct {
		reason  string
		content string // of the file; "" for no file
		context string
		qps     float32
		problem []string
	}{
		"Good":    {reason: "a context that is named", content: kubeconfig, context: "one", qps: 5},
		"Current": {reason: "the current context", content: kubeconfig + "current-context: one\n", qps: 5},
		"Missing": {reason: "no such file", qps: 5, problem: []string{"does not exist", "--tenant-kubeconfig"}},
		"Garbage": {reason: "something else than a kubeconfig", content: "\tx", qps: 5, problem: []string{"is not a kubeconfig"}},
		"NoContext": {reason: "nothing says which cluster", content: kubeconfig, qps: 5,
			problem: []string{"no current-context", "--tenant-kube-context", "broken, one"}},
		"WrongContext": {reason: "names those there are", content: kubeconfig, context: "two", qps: 5,
			problem: []string{`no context "two"`, "broken, one"}},
		"NoCluster": {reason: "a context without its cluster", content: kubeconfig, context: "broken", qps: 5,
			problem: []string{"cannot be used", `"broken"`}},
		"NoRequests": {reason: "zero would mean client-go's own limit", content: kubeconfig, context: "one",
			problem: []string{"--tenant-kube-api-qps is 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kubeconfig")
			if tc.content != "" {
				if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cluster := Cluster{Name: "tenant cluster", Prefix: "tenant-", Kubeconfig: file, Context: tc.context, QPS: tc.qps, Burst: 10}
			_, config, err := cluster.RESTConfig(t.Context(), "test")
			checkProblem(t, tc.reason, err, tc.problem)
			if tc.problem == nil && (config.Host != "https://127.0.0.1:1" || config.QPS != 5 || !strings.HasPrefix(config.UserAgent, "test/")) {
				t.Errorf("%s: got host %s, QPS %v, user agent %s", tc.reason, config.Host, config.QPS, config.UserAgent)
			}
		})
	}
	_, _, err := (&Cluster{Name: "tenant cluster", Prefix: "tenant-"}).RESTConfig(t.Context(), "test")
	checkProblem(t, "outside of a pod there is no default", err, []string{"not running in a pod", "KARPENTER_METAL3_TENANT_KUBECONFIG"})
}

func checkProblem(t *testing.T, reason string, err error, want []string) {
	t.Helper()
	if (err == nil) != (want == nil) {
		t.Fatalf("%s: got error %v, want %q", reason, err, want)
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %q does not say %q", reason, err, part)
		}
	}
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %q is not one line", reason, err)
	}
}

func TestAPIAtStart(t *testing.T) {
	answers := map[string]string{
		"/version":              `{"gitVersion":"v1.36.3"}`,
		"/apis/metal3.io/v1":    `{"kind":"APIResourceList","groupVersion":"metal3.io/v1","resources":[{"name":"hosts","kind":"Host"}]}`,
		"/apis/forbidden.io/v1": "",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, found := answers[r.URL.Path]
		switch {
		case r.Header.Get("Authorization") == "Bearer wrong":
			w.WriteHeader(http.StatusUnauthorized)
		case !found:
			w.WriteHeader(http.StatusNotFound)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answer))
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	if err := WaitForAPI(t.Context(), config, "management cluster", time.Minute); err != nil {
		t.Errorf("an API server that answers: %v", err)
	}
	err := WaitForAPI(t.Context(), &rest.Config{Host: server.URL, BearerToken: "wrong"}, "management cluster", time.Minute)
	checkProblem(t, "waiting does not mend credentials", err, []string{"refuses the credentials"})

	kind := func(group, name string) Kind {
		return Kind{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: name}, Remedy: "install " + name}
	}
	if err := RequireKinds(config, "management cluster", kind("metal3.io", "Host")); err != nil {
		t.Errorf("a kind that is served: %v", err)
	}
	err = RequireKinds(config, "management cluster", kind("metal3.io", "Host"), kind("metal3.io", "Claim"), kind("ours.io", "Machine"))
	checkProblem(t, "every kind that is missing is named", err, []string{
		"Claim (metal3.io/v1) is not installed", "install Claim", "Machine (ours.io/v1) is not installed", "install Machine"})

	server.Close()
	err = WaitForAPI(t.Context(), config, "management cluster", time.Millisecond)
	checkProblem(t, "no server", err, []string{"management cluster", server.URL, "did not answer within 1ms"})
}

func TestCheckAddress(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	checkProblem(t, "the address is in use", CheckAddress("metrics-bind-address", busy.Addr().String()),
		[]string{"--metrics-bind-address", busy.Addr().String(), "choose another address"})
	for _, good := range []string{Disabled, "", "127.0.0.1:0", "[::1]:0", "[::]:0", ":0"} {
		if err := CheckAddress("metrics-bind-address", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

func TestVersion(t *testing.T) {
	ran, out := false, &bytes.Buffer{}
	cmd := NewCommand(Command{Name: "karpenter-metal3-test", Run: func(context.Context) error { ran = true; return nil }})
	cmd.SetOut(out)
	cmd.SetArgs([]string{"--version"})
	if err := cmd.ExecuteContext(t.Context()); err != nil || ran {
		t.Errorf("--version does nothing else: got %v, ran %v", err, ran)
	}
	if !strings.HasPrefix(out.String(), "karpenter-metal3-test v") {
		t.Errorf("got %q, want the version under the binary's own name", out)
	}
}

func TestOptionsValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		change  func(*Options)
		problem []string
	}{
		"Defaults":   {reason: "they are valid", change: func(*Options) {}},
		"NoElection": {reason: "a program without leader election has no lease", change: func(o *Options) { o.LeaderElection = nil }},
		"Disabled": {reason: "what is not used is not checked",
			change: func(o *Options) { o.LeaderElection.Enabled, o.LeaderElection.RetryPeriod = false, 0 }},
		"Startup": {reason: "it would give up at once", change: func(o *Options) { o.StartupTimeout = 0 },
			problem: []string{"--startup-timeout is 0s"}},
		"ShortLease": {reason: "two would work at once", change: func(o *Options) {
			o.LeaderElection.LeaseDuration = o.LeaderElection.RenewDeadline
		}, problem: []string{"--leader-elect-lease-duration is 20s"}},
		"OneAttempt": {reason: "a single failed request would end the process",
			change: func(o *Options) { o.LeaderElection.RetryPeriod = 15 * time.Second }, problem: []string{"--leader-elect-retry-period 15s"}},
		"ZeroInterval": {reason: "it would retry without a pause", change: func(o *Options) { o.LeaderElection.RetryPeriod = 0 },
			problem: []string{"--leader-elect-retry-period 0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions(nil)
			o.MetricsAddress, o.HealthAddress = Disabled, Disabled
			o.AddFlags(&cliflag.NamedFlagSets{})
			tc.change(&o)
			checkProblem(t, tc.reason, o.Validate(), tc.problem)
		})
	}
}

func TestWithClient(t *testing.T) {
	var first, second client.Client = fake.NewFakeClient(), fake.NewFakeClient()
	var m manager.Manager = &managerWithClient{client: first}
	if WithClient(m, second).GetClient() != second || m.GetClient() != first {
		t.Error("the client is not the one that was given")
	}
}
