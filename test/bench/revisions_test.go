// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	controlplane "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
)

// rewriting is how long objects are written again and again.
var rewriting = 40 * time.Second

const (
	// rewriters write at a time.
	rewriters = 8
	// fewSecrets are how many the namespace may have, so that the measurement comes soon to what makes room for others.
	fewSecrets = 100
	// collected is how many Secrets the garbage collector deletes in a second: kube-controller-manager gives it 40 requests
	// (--kube-api-qps=20, twice), and a deletion is two or three. collectedAtOnce is its burst.
	collected, collectedAtOnce = 20, 60
	// machineRate and machineBurst are the bounds of pkg/webhooks, in MiB.
	machineRate, machineBurst = 64.0 / (1 << 10), 16
)

// BenchmarkRevisions has the token of a provider write objects of the largest size that it may, again and again, as eight clients at a
// time that try again when they are told to. Each revision stays in etcd until it is compacted. It reports:
//
//	open-MiB/s       what an account that nothing bounds writes, in Secrets of 512 KiB
//	machines-MiB     what the provider has written in annotations of one Machine each, in machines-s seconds
//	secrets-MiB/s    what it writes in Secrets, which it creates and empties, once the namespace has as many as it may
//	minutes-2GiB     until 2 GiB, etcd's default quota, are written with both, by two replicas of the webhook
func BenchmarkRevisions(b *testing.B) {
	for b.Loop() {
		measureRevisions(b)
	}
}

func measureRevisions(b *testing.B) {
	cluster := management.New(b, nil)
	cluster.StartWebhook(b)
	cluster.Grant(b, management.TenantNamespace, "provider-management.yaml")
	provider := cluster.As(b, "karpenter-metal3-provider")

	open := rewrite(b, cluster, func(ctx context.Context, writer int) func(n int) error {
		secret := joinOf(writer, 0, 512<<10)
		secret.Name = fmt.Sprintf("open-%d", writer)
		return func(n int) error {
			if n == 0 {
				return cluster.Client.Create(ctx, secret)
			}
			_, _ = rand.Read(secret.Data["userData"])
			secret.ResourceVersion = ""
			return cluster.Client.Update(ctx, secret)
		}
	})
	b.ReportMetric(open.MiB/open.seconds, "open-MiB/s")

	machines := rewrite(b, cluster, func(ctx context.Context, writer int) func(n int) error {
		machine := management.Machine(writer)
		return func(n int) error {
			if n == 0 {
				return cluster.Client.Create(ctx, machine)
			}
			patch := fmt.Sprintf(`{"metadata": {"annotations": {"x": "%d%s"}}}`, n, strings.Repeat("x", 30<<10))
			return provider.Patch(ctx, machine, client.RawPatch(types.MergePatchType, []byte(patch)))
		}
	})
	b.ReportMetric(machines.seconds, "machines-s")
	reportAtMost(b, machines.MiB, "machines-MiB", machineBurst+machineRate*machines.seconds+1, "the webhook bounds what a provider writes")

	collectGarbage(b, cluster)
	var created atomic.Int64
	secrets := rewrite(b, cluster, func(ctx context.Context, writer int) func(n int) error {
		return func(n int) error {
			secret := joinOf(writer, n, 64<<10-200)
			if err := provider.Create(ctx, secret); err != nil {
				if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota") || apierrors.IsConflict(err) {
					return nil // the conflict is of the quota
				}
				return err
			}
			created.Add(1)
			if err := provider.Delete(ctx, secret); !apierrors.IsForbidden(err) {
				return fmt.Errorf("a provider has deleted a Secret: %w", err)
			}
			for range 2 {
				secret.Data = map[string][]byte{v1alpha1.UserDataSecretKey: []byte("x")}
				err := provider.Update(ctx, secret)
				if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsForbidden(err) {
					break // it was collected, or is empty
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
	})
	atOnce := float64(fewSecrets+collectedAtOnce) * 65 / (1 << 10)
	most := collected * 65.0 / (1 << 10)
	b.ReportMetric(max(0, secrets.MiB-atOnce)/secrets.seconds, "secrets-MiB/s")
	reportAtMost(b, float64(created.Load()), "secrets", fewSecrets+collectedAtOnce+collected*secrets.seconds,
		"the garbage collector alone makes room for Secrets")
	b.ReportMetric((2<<10-2*machineBurst)/(2*machineRate+most)/60, "minutes-2GiB")
}

// joinOf is the n-th Secret of a writer, of a Machine that does not exist.
func joinOf(writer, n, size int) *corev1.Secret {
	name := fmt.Sprintf("m-%d-%d", writer, n)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: management.TenantNamespace, Name: name + "-join",
		Labels: map[string]string{v1alpha1.MachineUIDLabelKey: name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Name: name, UID: types.UID(name),
			Controller: ptr.To(true)}}},
		Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"userData": make([]byte, size), "token": []byte("x")}}
	_, _ = rand.Read(secret.Data["userData"])
	return secret
}

// written is what etcd was given, in MiB, and in which time.
type written struct{ MiB, seconds float64 }

// rewrite has the writers write for a while, and returns what etcd was given meanwhile. Each writer waits for its last answer: the API
// server goes on with a write whose client has left, and then etcd is given it in the next measurement.
func rewrite(b *testing.B, cluster *management.Cluster, writer func(ctx context.Context, writer int) func(n int) error) written {
	b.Helper()
	before, began := etcdMetrics(b, cluster)[etcdWritten], time.Now()
	var all sync.WaitGroup
	for number := range rewriters {
		all.Go(func() {
			write := writer(b.Context(), number)
			for n := 0; time.Since(began) < rewriting; n++ {
				if err := write(n); err != nil && !apierrors.IsTooManyRequests(err) {
					b.Errorf("write %d: %v", n, err)
					return
				}
			}
		})
	}
	all.Wait()
	return written{(etcdMetrics(b, cluster)[etcdWritten] - before) / (1 << 20), time.Since(began).Seconds()}
}

// collectGarbage starts the garbage collector of Kubernetes with its usual rate, and counts the Secrets of the tenant's namespace.
func collectGarbage(b *testing.B, cluster *management.Cluster) {
	b.Helper()
	const user = "kube-controller-manager"
	cluster.Give(b, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}})
	program, err := controlplane.Binaries{"../../bin"}.Find(user)
	if err != nil {
		b.Fatal(err)
	}
	command := exec.Command(program, "--kubeconfig="+cluster.Kubeconfig(b, user), "--leader-elect=false", "--secure-port=0",
		"--controllers=garbage-collector-controller,resourcequota-controller")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = command.Process.Kill() // it may have ended
		_ = command.Wait()
	})
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: management.TenantNamespace, Name: "tenant"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/secrets": resource.MustParse(fmt.Sprint(fewSecrets))}}}
	if err := cluster.Client.Create(b.Context(), quota); err != nil {
		b.Fatal(err)
	}
}
