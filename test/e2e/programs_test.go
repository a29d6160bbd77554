// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxes "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// logLines is how much of each log a test shows that has failed.
const logLines = 40

// programs are the manager, the provider and the webhook, and the management API that they work with: processes of a sandbox, or pods of
// the charts.
type programs interface {
	// aim finds the process that does the work of a program now, and returns what kills it without warning.
	aim(ctx context.Context, program string) (kill func(context.Context) error, err error)
	// stop ends a program with all of its replicas, until start is called.
	stop(ctx context.Context, program string) (start func(context.Context) error, err error)
	// stopManagement has the management API not answer until start is called.
	stopManagement(ctx context.Context) (start func(context.Context) error, err error)
	// isReady is a condition: all replicas of a program work.
	isReady(ctx context.Context, program string) (missing string, err error)
	// metrics returns where those of the process are that does the work now, until the test ends, and the token to read them with, if they
	// need one.
	metrics(t *testing.T, program string) (url, token string)
	// logs returns the ends of a program's logs, by process.
	logs(ctx context.Context, program string) (map[string][]byte, error)
}

// ourPrograms are their names, which are the components of the charts too.
var ourPrograms = []string{sandboxes.ManagerName, sandboxes.ProviderName, sandboxes.WebhookName}

// untilReady waits until all replicas of our programs work, for the tests that come next. The test itself is over.
func (w *fixture) untilReady(t *testing.T) {
	t.Helper()
	for _, program := range ourPrograms {
		isReady := func(ctx context.Context) (string, error) { return w.programs.isReady(ctx, program) }
		if err := poll.Await(context.Background(), "all replicas of the "+program+" are ready", nothingMissing(isReady)); err != nil {
			t.Error(err)
		}
	}
}

// showLogs prints the ends of the logs of our programs, for a test that failed.
func (w *fixture) showLogs(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, program := range ourPrograms {
		logs, err := w.programs.logs(ctx, program)
		if err != nil {
			t.Logf("reading the logs of the %s, %v", program, err)
		}
		for name, log := range logs {
			t.Logf("the last lines of the log of %s:\n%s", name, log)
		}
	}
}

// stop ends one of our programs. It is started again by resume, at the latest when the test ends.
func (w *fixture) stop(t *testing.T, program string) (resume func()) {
	t.Helper()
	start, err := w.programs.stop(t.Context(), program)
	return w.resuming(t, program, start, err)
}

// stopManagement ends the API server of the management cluster, as stop does a program.
func (w *fixture) stopManagement(t *testing.T) (resume func()) {
	t.Helper()
	start, err := w.programs.stopManagement(t.Context())
	return w.resuming(t, "management API", start, err)
}

func (w *fixture) resuming(t *testing.T, what string, start func(context.Context) error, err error) (resume func()) {
	t.Helper()
	if err != nil {
		t.Fatalf("stopping the %s, %v", what, err)
	}
	resume = sync.OnceFunc(func() {
		if err := start(context.Background()); err != nil {
			t.Fatalf("starting the %s again, %v", what, err)
		}
	})
	t.Cleanup(func() {
		resume()
		w.untilReady(t)
	})
	return resume
}

// pods are our programs where the charts have installed them.
type pods struct {
	management, tenant client.Client
	clientset          kubernetes.Interface
	kubeconfig         string
	settings           settings
}

// deployment finds the Deployment of a program by the labels of its chart.
func (p *pods) deployment(ctx context.Context, program string) (*appsv1.Deployment, error) {
	labels := client.MatchingLabels{"app.kubernetes.io/name": "karpenter-metal3", "app.kubernetes.io/component": program}
	options := []client.ListOption{labels}
	if program == sandboxes.ProviderName { // each tenant has one
		labels["app.kubernetes.io/name"] = "karpenter-metal3-tenant"
		options = append(options, client.InNamespace(tenantNamespace))
	}
	found := &appsv1.DeploymentList{}
	if err := p.management.List(ctx, found, options...); err != nil {
		return nil, err
	}
	if len(found.Items) != 1 {
		return nil, fmt.Errorf("the management cluster has %d Deployments with the labels %v, and must have one, of our chart",
			len(found.Items), labels)
	}
	return &found.Items[0], nil
}

// podsOf returns the pods of a Deployment that are not being deleted.
func (p *pods) podsOf(ctx context.Context, deployment *appsv1.Deployment) ([]corev1.Pod, error) {
	found := &corev1.PodList{}
	err := p.management.List(ctx, found, client.InNamespace(deployment.Namespace),
		client.MatchingLabels(deployment.Spec.Selector.MatchLabels))
	return slices.DeleteFunc(found.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil }), err
}

// leader returns the pod of a program that does its work.
func (p *pods) leader(ctx context.Context, program string) (*corev1.Pod, error) {
	deployment, err := p.deployment(ctx, program)
	if err != nil {
		return nil, err
	}
	replicas, err := p.podsOf(ctx, deployment)
	if err != nil {
		return nil, err
	}
	// The provider's Lease is in the tenant's cluster.
	leases, inTenant := &coordinationv1.LeaseList{}, &coordinationv1.LeaseList{}
	if err := errors.Join(p.management.List(ctx, leases, client.InNamespace(deployment.Namespace)),
		p.tenant.List(ctx, inTenant, client.InNamespace(metav1.NamespaceSystem))); err != nil {
		return nil, err
	}
	if pod := leading(replicas, slices.Concat(leases.Items, inTenant.Items)); pod != nil {
		return pod, nil
	}
	return nil, fmt.Errorf("none of the %d pods of the %s holds a Lease", len(replicas), program)
}

// leading returns the pod that holds one of the Leases, nil if none does. The holder is the host name, which is that of the pod, and
// a number of its process.
func leading(replicas []corev1.Pod, leases []coordinationv1.Lease) *corev1.Pod {
	for i := range replicas {
		if slices.ContainsFunc(leases, func(lease coordinationv1.Lease) bool {
			return strings.HasPrefix(ptr.Deref(lease.Spec.HolderIdentity, ""), replicas[i].Name+"_")
		}) {
			return &replicas[i]
		}
	}
	return nil
}

// aim implements programs. The pod is deleted without a grace period.
func (p *pods) aim(ctx context.Context, program string) (kill func(context.Context) error, err error) {
	pod, err := p.leader(ctx, program)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return p.management.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	}, nil
}

// stop implements programs.
func (p *pods) stop(ctx context.Context, program string) (start func(context.Context) error, err error) {
	deployment, err := p.deployment(ctx, program)
	if err != nil {
		return nil, err
	}
	replicas := ptr.Deref(deployment.Spec.Replicas, 1)
	scale := func(ctx context.Context, replicas int32) error {
		return p.management.Patch(ctx, deployment, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)))
	}
	start = func(ctx context.Context) error { return scale(ctx, replicas) }
	if err := scale(ctx, 0); err != nil {
		return nil, err
	}
	// Pods that are shutting down still answer.
	return start, poll.Await(ctx, "all pods of the "+program+" are gone", func(ctx context.Context) error {
		left := &corev1.PodList{}
		err := p.management.List(ctx, left, client.InNamespace(deployment.Namespace),
			client.MatchingLabels(deployment.Spec.Selector.MatchLabels))
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d are left", len(left.Items))
		}
		return err
	})
}

// stopManagement implements programs, by the commands of the environment. They may return before the API server has ended, or begun.
func (p *pods) stopManagement(ctx context.Context) (start func(context.Context) error, err error) {
	until := func(ctx context.Context, answers bool) error {
		return poll.Await(ctx, fmt.Sprintf("it is %v that the API server answers", answers), func(ctx context.Context) error {
			err := p.clientset.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
			switch {
			case (err == nil) == answers:
				return nil
			case err == nil:
				return errors.New("it answers")
			}
			return err
		})
	}
	start = func(ctx context.Context) error {
		if err := shell(ctx, p.settings.managementUp); err != nil {
			return err
		}
		return until(ctx, true)
	}
	if err := shell(ctx, p.settings.managementDown); err != nil {
		return nil, err
	}
	if err := until(ctx, false); err != nil {
		return nil, errors.Join(err, start(ctx))
	}
	return start, nil
}

func shell(ctx context.Context, command string) error {
	output, err := exec.CommandContext(ctx, "sh", "-c", command).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %q, %w:\n%s", command, err, output)
	}
	return nil
}

// isReady implements programs.
func (p *pods) isReady(ctx context.Context, program string) (string, error) {
	deployment, err := p.deployment(ctx, program)
	if err != nil {
		return "", err
	}
	wanted, is := ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status
	if is.ObservedGeneration < deployment.Generation || is.Replicas != wanted || is.AvailableReplicas != wanted {
		return fmt.Sprintf("Deployment %s/%s has %d of %d replicas available", deployment.Namespace, deployment.Name, is.AvailableReplicas,
			wanted), nil
	}
	return "", nil
}

// logs implements programs.
func (p *pods) logs(ctx context.Context, program string) (map[string][]byte, error) {
	deployment, err := p.deployment(ctx, program)
	if err != nil {
		return nil, err
	}
	replicas, err := p.podsOf(ctx, deployment)
	logs := map[string][]byte{}
	for _, pod := range replicas {
		content, err := p.clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: ptr.To[int64](logLines)}).
			DoRaw(ctx)
		if err != nil {
			content = fmt.Appendf(nil, "reading it, %v", err)
		}
		logs["pod "+pod.Name] = content
	}
	return logs, err
}

// metrics implements programs, by a forwarded port: the API server's proxy would drop the token.
func (p *pods) metrics(t *testing.T, program string) (url, token string) {
	t.Helper()
	pod, err := p.leader(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	kubectl := kubectlPath(t)
	command := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", p.kubeconfig, "--namespace", pod.Namespace, "port-forward",
		"pod/"+pod.Name, ":metrics")
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Wait() }) // the end of the test's context has killed it
	line, err := bufio.NewReader(output).ReadString('\n')
	var port int
	if _, scanErr := fmt.Sscanf(line, "Forwarding from 127.0.0.1:%d", &port); scanErr != nil {
		t.Fatalf("forwarding the port of the metrics of pod %s: kubectl says %q (%v)", pod.Name, line, err)
	}
	if !slices.Contains(pod.Spec.Containers[0].Args, "--metrics-secure=true") {
		return fmt.Sprintf("http://127.0.0.1:%d/metrics", port), ""
	}
	return fmt.Sprintf("https://127.0.0.1:%d/metrics", port), p.metricsToken(t)
}

// metricsToken makes an account that may read the metrics, until the test ends, and returns a token of it.
func (p *pods) metricsToken(t *testing.T) string {
	t.Helper()
	const name = "e2e-metrics"
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: name}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "karpenter-metal3-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: name}},
	}
	for _, object := range []client.Object{account, binding} {
		if err := client.IgnoreAlreadyExists(p.management.Create(t.Context(), object)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.IgnoreNotFound(p.management.Delete(context.Background(), object)); err != nil {
				t.Error(err)
			}
		})
	}
	if err := env.AwaitRights(t.Context(), p.management, binding); err != nil {
		t.Fatal(err)
	}
	request, err := p.clientset.CoreV1().ServiceAccounts(account.Namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

func TestLeading(t *testing.T) {
	pod := func(name string) corev1.Pod { return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	lease := func(holder *string) coordinationv1.Lease {
		return coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: holder}}
	}
	replicas := []corev1.Pod{pod("manager-5f-a"), pod("manager-5f-ab")}
	for name, tc := range map[string]struct {
		reason string
		leases []coordinationv1.Lease
		want   string
	}{
		"Holder": {reason: "the holder is a pod, and a number of its process",
			leases: []coordinationv1.Lease{lease(ptr.To("node-1")), lease(ptr.To("manager-5f-ab_8d3c"))}, want: "manager-5f-ab"},
		"LongerName": {reason: "a name that only begins with the pod's is another pod's",
			leases: []coordinationv1.Lease{lease(ptr.To("manager-5f-abc_8d3c"))}},
		"Released": {reason: "a leader that has ended holds nothing", leases: []coordinationv1.Lease{lease(ptr.To("")), lease(nil)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if leader := leading(replicas, tc.leases); leader != nil {
				got = leader.Name
			}
			if got != tc.want {
				t.Errorf("%s: pod %q leads, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
