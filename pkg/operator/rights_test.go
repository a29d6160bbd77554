// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

var environment env.Environment

func TestMain(m *testing.M) { env.Main(m, &environment) }

// testTimeout is far longer than anything takes: only a test that fails waits for it.
// program is one whose cache has ConfigMaps and Secrets, with a user of its own.
type program struct {
	t      *testing.T
	user   string
	rights *Rights
	manager.Manager
	ended chan error
	// stopped is closed when the manager has stopped.
	stopped chan struct{}
}

// Start implements manager.Manager.
func (p *program) Start(ctx context.Context) error {
	defer close(p.stopped)
	return p.Manager.Start(ctx)
}

func newProgram(t *testing.T, rights *Rights) *program {
	t.Helper()
	p := &program{t: t, user: environment.Namespace(t), rights: rights, ended: make(chan error, 1), stopped: make(chan struct{})}
	config := rest.CopyConfig(environment.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: p.user, Groups: []string{"system:authenticated"}}
	o := Options{MetricsAddress: Disabled, HealthAddress: Disabled}
	var err error
	caches := cache.Options{DefaultWatchErrorHandler: rights.Handler("test cluster", config)}
	if p.Manager, err = o.NewManager(config, manager.Options{Cache: caches}, nil); err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}} {
		if _, err := p.GetCache().GetInformer(t.Context(), object, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *program) start() {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	p.t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		p.ended <- p.rights.Start(ctx, p)
	}()
}

// may gives the user the right to read resources.
func (p *program) may(resources ...string) {
	p.t.Helper()
	name := p.user + "-" + strings.Join(resources, "-")
	objects := []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: resources, Verbs: []string{"get", "list", "watch"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: p.user}}},
	}
	environment.Give(p.t, objects...)
	for _, object := range objects {
		p.t.Cleanup(func() {
			if err := environment.Client.Delete(context.Background(), object); err != nil {
				p.t.Error(err)
			}
		})
	}
}

// isDenied is a condition: the API server has denied something.
func (p *program) isDenied(context.Context) error {
	p.rights.mu.Lock()
	defer p.rights.mu.Unlock()
	if len(p.rights.denied) == 0 {
		return errors.New("nothing is denied")
	}
	return nil
}

// TestMissingRight: the error names the right, the user and the cluster, at once and not after the cache has timed out.
func TestMissingRight(t *testing.T) {
	rights := NewRights()
	rights.grace = 0
	p := newProgram(t, rights)
	p.may("configmaps")
	p.start()
	err := poll.Receive(t, "the end of a program that waits for its caches", p.ended)
	for _, want := range []string{
		"test cluster at " + environment.Config.Host, `User "` + p.user + `"`, `list resource "secrets"`, "config/rbac",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not contain %q", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "configmaps") {
		t.Errorf("%v names a right that is there", err)
	}
	p.may("secrets") // without it the manager would never stop
	poll.Receive(t, "the end of the manager", p.stopped)
}

// TestMissingRightOfAnOption: the error says which options need it, so that a person can do without them.
func TestMissingRightOfAnOption(t *testing.T) {
	rights := NewRights()
	rights.grace = 0
	rights.NeededFor("--secrets", "", "secrets")
	rights.NeededFor("the feature gate Secrets", "", "secrets")
	rights.NeededFor("--other", "example.com", "secrets", "configmaps")
	p := newProgram(t, rights)
	p.may("configmaps")
	p.start()
	err := poll.Receive(t, "the end of a program that waits for its caches", p.ended)
	if want := "denies this program what it needs only for --secrets and the feature gate Secrets, "; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v does not contain %q", err, want)
	}
	p.may("secrets")
	poll.Receive(t, "the end of the manager", p.stopped)
}

// TestRightComesLate: an API server that has just started denies what it grants later, and optional kinds need not be readable.
func TestRightComesLate(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		rights *Rights
		denied bool
	}{
		"Late":     {"the right is there within the grace", NewRights(), true},
		"Optional": {"the program can do without", NewRights(""), false},
	} {
		t.Run(name, func(t *testing.T) {
			tc.rights.grace = time.Hour
			if !tc.denied {
				tc.rights.grace = 0
			}
			p := newProgram(t, tc.rights)
			p.start()
			if tc.denied {
				poll.Eventually(t, "something is denied, or the test proves nothing", p.isDenied)
			}
			p.may("configmaps", "secrets")
			ctx, cancel := poll.WithPatience(t.Context())
			defer cancel()
			if !p.GetCache().WaitForCacheSync(ctx) {
				t.Errorf("%s: the caches are not synced", tc.reason)
			}
			select {
			case err := <-p.ended:
				t.Errorf("%s: the program has ended: %v", tc.reason, err)
			default:
			}
		})
	}
}
