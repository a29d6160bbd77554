// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
)

// StartProgram starts one of our programs, adds the flag of its probes, and returns when it is ready. The Spec's default name is that
// of the program, and its default rank is above RankClients.
func (c *Cluster) StartProgram(ctx context.Context, program string, spec process.Spec) error {
	address, err := freeport.Address()
	if err != nil {
		return err
	}
	spec.Name, spec.Rank = cmp.Or(spec.Name, program), cmp.Or(spec.Rank, RankClients+1)
	spec.Args = append(spec.Args, probesFlag+address)
	if err := c.options.Binaries.Start(c.options.Processes, program, spec); err != nil {
		return err
	}
	return Await(ctx, "the "+spec.Name+" to be ready", func(ctx context.Context) error {
		return CheckReady(ctx, c.options.Processes, spec.Name)
	})
}

// probesFlag of our programs has the address of their probes.
const probesFlag = "--health-probe-bind-address="

// CheckReady returns an error unless a process of StartProgram is ready. One that was started again or killed serves before it is: a
// webhook answers, and denies what it cannot judge yet.
func CheckReady(ctx context.Context, processes *process.Supervisor, name string) error {
	spec, err := processes.Spec(name)
	if err != nil {
		return err
	}
	for _, argument := range spec.Args {
		if address, is := strings.CutPrefix(argument, probesFlag); is {
			return CheckURL(ctx, http.DefaultClient, "http://"+address+"/readyz")
		}
	}
	return fmt.Errorf("%s was not started by StartProgram", name)
}

// StartWebhook configures our webhook in the cluster, starts it, and returns when it is ready. The kubeconfig file is the webhook's. Its
// certificate is of the cluster's authority: there may be no manager to make one.
func (c *Cluster) StartWebhook(ctx context.Context, kubeconfig string, spec process.Spec) error {
	address, err := freeport.Address()
	if err != nil {
		return err
	}
	pair, err := c.authority.Serving("webhook", nil, []net.IP{net.ParseIP(loopback)})
	if err != nil {
		return err
	}
	certificates := filepath.Join(c.dir(), "webhook")
	if err := pair.WriteFiles(certificates, "tls"); err != nil {
		return err
	}
	// The API server is not in the cluster's network here, so it uses the address and not a Service.
	configurations, err := webhook.Both(webhook.Options{URL: "https://" + address, CABundle: c.authority.Certificate()})
	if err != nil {
		return err
	}
	for _, configuration := range configurations {
		if err := Apply(ctx, c.Client, configuration); err != nil {
			return err
		}
	}
	spec.Args = append([]string{
		"--kubeconfig=" + kubeconfig, "--webhook-bind-address=" + address, "--cert-rotation=false", "--cert-dir=" + certificates,
		"--shutdown-delay=0",
	}, spec.Args...)
	return c.StartProgram(ctx, "webhook", spec)
}

// Users of our programs in the bindings in config/rbac. None is a member of a group: they have only the rights of those files.
const (
	ManagerUser  = policy.ManagerUser
	ProviderUser = "karpenter-metal3-provider"
	WebhookUser  = "karpenter-metal3-webhook"
)

// Files of config/rbac with the rights of a tenant's provider, in either cluster.
var (
	ProviderManagementRights = []string{"provider-management.yaml", "provider-dra-management.yaml"}
	ProviderTenantRights     = []string{"provider-tenant.yaml", "provider-dra-tenant.yaml"}
)

// Grant gives a user the rights in files of config/rbac, and writes the user's kubeconfig file. namespace is the files' .Namespace. It
// returns once the API server authorizes by them.
func (c *Cluster) Grant(ctx context.Context, user, namespace, kubeconfig string, files ...string) error {
	for _, file := range files {
		rights, err := rbac.Read(rbac.Files, file, namespace)
		if err != nil {
			return err
		}
		for _, object := range rights {
			if subjects, ok, _ := unstructured.NestedSlice(object.Object, "subjects"); ok {
				for _, subject := range subjects {
					subject.(map[string]any)["name"] = user
				}
				object.Object["subjects"] = subjects
			}
			if err := Apply(ctx, c.Client, object); err != nil {
				return fmt.Errorf("granting %s the rights in %s, %w", user, file, err)
			}
			if err := env.AwaitRights(ctx, c.Client, object); err != nil {
				return err
			}
		}
	}
	return c.WriteKubeconfig(kubeconfig, user)
}
