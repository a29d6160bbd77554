// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// TestPods: they have the restricted security context, resource requests and probes.
func TestPods(t *testing.T) {
	for name, tc := range releases {
		t.Run(name, func(t *testing.T) {
			for name, deployment := range ofKind[appsv1.Deployment](t, render(t, tc.chart, tc.flags...), "Deployment") {
				pod := deployment.Spec.Template.Spec
				if context := pod.SecurityContext; context == nil || !*context.RunAsNonRoot || *context.RunAsUser == 0 ||
					context.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
					t.Errorf("%s: security of the pod: %+v", name, context)
				}
				if *pod.EnableServiceLinks {
					t.Errorf("%s: variables of Services begin like those of our flags", name)
				}
				container := pod.Containers[0]
				if context := container.SecurityContext; context == nil || *context.AllowPrivilegeEscalation || !*context.ReadOnlyRootFilesystem ||
					*context.Privileged || context.Capabilities.Drop[0] != "ALL" {
					t.Errorf("%s: security of the container: %+v", name, context)
				}
				if container.LivenessProbe == nil || container.ReadinessProbe == nil || container.StartupProbe == nil {
					t.Errorf("%s has no probes", name)
				}
				if container.Resources.Requests.Memory().IsZero() || container.Resources.Limits.Memory().IsZero() {
					t.Errorf("%s: resources: %v", name, container.Resources)
				}
				if strings.HasSuffix(name, "webhook") != (pod.TerminationGracePeriodSeconds != nil && len(container.Ports) == 3) {
					t.Errorf("%s: ports: %v", name, container.Ports)
				}
			}
		})
	}
}

// TestPage: it is off by default, and has no token and no rights.
func TestPage(t *testing.T) {
	const page = "karpenter-metal3-page"
	for _, object := range render(t, Management) {
		if object.GetName() == page {
			t.Errorf("by default there is the %s %s", object.GetKind(), page)
		}
	}
	objects := render(t, Management, "--set=page.enabled=true")
	for _, object := range objects {
		if strings.HasSuffix(object.GetKind(), "Binding") && strings.Contains(fmt.Sprint(object.Object), page) {
			t.Errorf("%s %s gives it rights", object.GetKind(), object.GetName())
		}
	}
	deployment, account := ofKind[appsv1.Deployment](t, objects, "Deployment")[page], ofKind[corev1.ServiceAccount](t, objects,
		"ServiceAccount")[page]
	if deployment == nil || account == nil || deployment.Spec.Template.Spec.ServiceAccountName != page ||
		*deployment.Spec.Template.Spec.AutomountServiceAccountToken || *account.AutomountServiceAccountToken {
		t.Errorf("it has a token, or another account: %v, %v", deployment, account)
	}
	policy := ofKind[networkingv1.NetworkPolicy](t, render(t, Management, "--set=page.enabled=true",
		"--set=networkPolicy.pageFrom[0].podSelector.matchLabels.app=proxy"), "NetworkPolicy")[page]
	var open []string
	for _, rule := range policy.Spec.Ingress {
		if len(rule.From) == 0 {
			open = append(open, rule.Ports[0].Port.String())
		}
	}
	if len(policy.Spec.Ingress) != 2 || !slices.Equal(open, []string{"health"}) {
		t.Errorf("others than the proxy reach it: %v", policy.Spec.Ingress)
	}
}

// TestNoAddressFamily: the charts are the same for clusters of IPv4, of IPv6 and of both. Their programs listen on all addresses, and
// Services are of the family that the cluster has.
func TestNoAddressFamily(t *testing.T) {
	ipv4 := regexp.MustCompile(`\b[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+\b`)
	for _, name := range []string{"management", "tenant-management", "tenant-tenant"} {
		for _, object := range render(t, releases[name].chart, releases[name].flags...) {
			if object.GetKind() == "CustomResourceDefinition" {
				continue // its descriptions have examples
			}
			text := fmt.Sprint(object.Object)
			if found := ipv4.FindString(text); found != "" {
				t.Errorf("%s: %s %s has the address %s", name, object.GetKind(), object.GetName(), found)
			}
			if strings.Contains(text, "ipFamil") || strings.Contains(text, "clusterIP") {
				t.Errorf("%s: %s %s chooses a family", name, object.GetKind(), object.GetName())
			}
		}
	}
}

// TestFlags: the programs accept every argument of the charts and its value.
func TestFlags(t *testing.T) {
	for name, tc := range releases {
		t.Run(name, func(t *testing.T) {
			for _, deployment := range ofKind[appsv1.Deployment](t, render(t, tc.chart, tc.flags...), "Deployment") {
				container := deployment.Spec.Template.Spec.Containers[0]
				if len(container.Command) > 0 {
					t.Errorf("%s has a command, which the test does not check", container.Name)
				}
				// --version makes it parse all flags, print its version and end.
				command := exec.CommandContext(t.Context(), binary(t, container.Name, "make build"), append(container.Args, "--version")...)
				command.Env = variables(container)
				if out, err := command.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "karpenter-metal3-"+container.Name+" ") {
					t.Errorf("%s %v: %v\n%s", container.Name, container.Args, err, out)
				}
			}
		})
	}
	out, err := exec.CommandContext(t.Context(), binary(t, "manager", "make build"), "--no-such-flag", "--version").CombinedOutput()
	if err == nil {
		t.Errorf("an unknown flag is accepted, so this test finds nothing: %s", out)
	}
}
