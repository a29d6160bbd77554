// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func TestFromEnvironment(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		args        []string
		environment map[string]string
		want        int
		problem     string
	}{
		"Default":     {reason: "nothing is set", want: 1},
		"Environment": {reason: "the variable stands in for the flag", environment: map[string]string{"KARPENTER_METAL3_KUBE_API_BURST": "7"}, want: 7},
		"FlagWins":    {reason: "the command line is nearer", args: []string{"--kube-api-burst=9"}, environment: map[string]string{"KARPENTER_METAL3_KUBE_API_BURST": "7"}, want: 9},
		"Empty":       {reason: "an empty variable is an unset one", environment: map[string]string{"KARPENTER_METAL3_KUBE_API_BURST": ""}, want: 1},
		"Wrong":       {reason: "names variable, value and flag", environment: map[string]string{"KARPENTER_METAL3_KUBE_API_BURST": "many"}, problem: `environment variable KARPENTER_METAL3_KUBE_API_BURST has the wrong value "many" for --kube-api-burst`},
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
		"Good":         {reason: "a context that is named", content: kubeconfig, context: "one", qps: 5},
		"Current":      {reason: "the current context", content: kubeconfig + "current-context: one\n", qps: 5},
		"Missing":      {reason: "no such file", qps: 5, problem: []string{"does not exist", "--tenant-kubeconfig"}},
		"Garbage":      {reason: "something else than a kubeconfig", content: "\tx", qps: 5, problem: []string{"is not a kubeconfig"}},
		"NoContext":    {reason: "nothing says which cluster", content: kubeconfig, qps: 5, problem: []string{"no current-context", "--tenant-kube-context", "broken, one"}},
		"WrongContext": {reason: "names those there are", content: kubeconfig, context: "two", qps: 5, problem: []string{`no context "two"`, "broken, one"}},
		"NoCluster":    {reason: "a context without its cluster", content: kubeconfig, context: "broken", qps: 5, problem: []string{"cannot be used", `"broken"`}},
		"NoRequests":   {reason: "zero would mean client-go's own limit, which nobody asked for", content: kubeconfig, context: "one", problem: []string{"--tenant-kube-api-qps is 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kubeconfig")
			if tc.content != "" {
				if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cluster := Cluster{Name: "tenant cluster", Prefix: "tenant-", Kubeconfig: file, Context: tc.context, QPS: tc.qps, Burst: 10}
			config, err := cluster.RESTConfig("test")
			checkProblem(t, tc.reason, err, tc.problem)
			if tc.problem == nil && (config.Host != "https://127.0.0.1:1" || config.QPS != 5 || !strings.HasPrefix(config.UserAgent, "test/")) {
				t.Errorf("%s: got host %s, QPS %v, user agent %s", tc.reason, config.Host, config.QPS, config.UserAgent)
			}
		})
	}
	_, err := (&Cluster{Name: "tenant cluster", Prefix: "tenant-"}).RESTConfig("test")
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
	checkProblem(t, "nobody there", err, []string{"management cluster", server.URL, "did not answer within 1ms"})
}

func TestCheckAddress(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	checkProblem(t, "somebody else listens there", CheckAddress("metrics-bind-address", busy.Addr().String()),
		[]string{"--metrics-bind-address", busy.Addr().String(), "choose another address"})
	for _, good := range []string{Disabled, "", "127.0.0.1:0"} {
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

// lock is a lease whose API server does as it is told.
type lock struct {
	resourcelock.Interface
	holder string
	err    error
}

func (l *lock) Identity() string { return "me" }
func (l *lock) Describe() string { return "lease" }
func (l *lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, nil, nil
}
func (l *lock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return l.err }
func (l *lock) Update(context.Context, resourcelock.LeaderElectionRecord) error { return l.err }

func TestPatientLock(t *testing.T) {
	down := errors.New("connection refused")
	leases := schema.GroupResource{Resource: "leases"}
	for name, tc := range map[string]struct {
		reason string
		holder string
		err    error
		record string
		fails  bool
	}{
		"Outage":       {reason: "a leader outlives its API server", holder: "me", err: down, record: "me"},
		"Starting":     {reason: "an API server that has just started forbids everything for a moment", holder: "me", err: apierrors.NewForbidden(leases, "l", nil), record: "me"},
		"Overtaken":    {reason: "somebody else is leader", holder: "me", err: apierrors.NewConflict(leases, "l", nil), record: "me", fails: true},
		"NotLeader":    {reason: "who is not leader does not become it by an outage", holder: "other", err: down, record: "me", fails: true},
		"GivingUp":     {reason: "the lease was not given up", holder: "me", err: down, record: "", fails: true},
		"LeaseDeleted": {reason: "the lease has to be taken anew", holder: "me", err: apierrors.NewNotFound(leases, "l"), record: "me", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			patient := &patientLock{Interface: &lock{holder: tc.holder, err: tc.err}}
			if _, _, err := patient.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := patient.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: tc.record})
			if (err != nil) != tc.fails {
				t.Errorf("%s: got %v, want failure %v", tc.reason, err, tc.fails)
			}
		})
	}
}
