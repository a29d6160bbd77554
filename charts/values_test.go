// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"strings"
	"testing"
)

// TestValuesThatCannotWork: they are rejected before anything is installed, and the error names the value.
func TestValuesThatCannotWork(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		chart  string
		set    []string
		want   []string
	}{
		"Typo": {chart: Management, reason: "a misspelt value would do nothing", set: []string{"webhok.enabled=false"},
			want: []string{"'webhok' not allowed"}},
		"TypoBelow": {chart: Management, reason: "nor below", set: []string{"manager.replica=2"},
			want: []string{"/manager", "'replica' not allowed"}},
		"NoReplicas": {chart: Management, reason: "no server would be claimed", set: []string{"manager.replicas=0"},
			want: []string{"/manager/replicas", "minimum"}},
		"PullPolicy": {chart: Management, reason: "kubelet knows three", set: []string{"image.pullPolicy=Sometimes"},
			want: []string{"/image/pullPolicy", "IfNotPresent"}},
		"Source": {chart: Management, reason: "there are two", set: []string{"webhook.certificates.source=vault"},
			want: []string{"/webhook/certificates/source", "certManager"}},
		"Duration": {chart: Management, reason: "a day is no unit of Go", set: []string{"manager.provisioningDeadline=1d"},
			want: []string{"/manager/provisioningDeadline"}},
		"NoNodeLabel": {chart: Management, reason: "the programs would not start", set: []string{"topologyLabels[0]=rack="},
			want: []string{"/topologyLabels/0", "does not match pattern"}},
		"Endpoint": {chart: Management, reason: "the manager would not start",
			set: []string{"manager.networkEndpoint=network.example.com"}, want: []string{"/manager/networkEndpoint"}},
		"ClearText": {chart: Management, reason: "the manager would not start", want: []string{"https URL only", "leave the Secret out"},
			set: []string{"manager.networkEndpoint=http://network.example.com", "manager.networkEndpointSecret=network"}},
		"UnusedIssuer": {chart: Management, reason: "an issuer that is not used is a mistake",
			set:  []string{"webhook.certificates.certManager.issuerRef.name=ca"},
			want: []string{"webhook.certificates.source is self", "Set the source to certManager"}},
		"NamelessIssuer": {chart: Management, reason: "cert-manager would not find it",
			set:  []string{"webhook.certificates.source=certManager", "webhook.certificates.certManager.issuerRef.kind=ClusterIssuer"},
			want: []string{"issuerRef has no name"}},
		"NobodyToCertify": {chart: Management, reason: "a certificate without a webhook",
			set:  []string{"webhook.enabled=false", "webhook.certificates.source=certManager"},
			want: []string{"webhook.enabled is false", "Enable the webhook"}},
		"KilledTooEarly": {chart: Management, reason: "requests would fail at each rollout", set: []string{"webhook.shutdownDelaySeconds=60"},
			want: []string{"shutdownDelaySeconds is 60", "terminationGracePeriodSeconds is 30", "longer"}},
		"ServersBesideUs": {chart: Management, reason: "the webhook's key is in the namespace",
			set: []string{"manager.hostNamespaces={" + namespace + "}"}, want: []string{"the namespace of the release", "namespace of its own"}},
		"NoServers": {chart: Management, reason: "no user data could be written", set: []string{"manager.hostNamespaces=null"},
			want: []string{"hostNamespaces"}},
		"FlagOfTheChart": {chart: Management, reason: "the probes would fail",
			set:  []string{"webhook.extraArgs={--health-probe-bind-address=:9}"},
			want: []string{"webhook.extraArgs has --health-probe-bind-address=:9", "leave it out"}},
		"QuotedUser": {chart: Management, reason: "it would end the list of users in the policy", set: []string{"policies.users={a'b}"},
			want: []string{"/policies/users/0"}},
		"NoFlag": {chart: Management, reason: "an argument that is no flag is refused by the program",
			set: []string{"manager.extraArgs={debug}"}, want: []string{"/manager/extraArgs/0"}},
		"Target": {chart: Tenant, reason: "there are two sides", set: []string{"target=both"},
			want: []string{"/target", "management", "tenant"}},
		"NoControllers": {chart: Tenant, reason: "the provider would not start", set: []string{"controllers=null"},
			want: []string{"missing property 'controllers'"}},
		"OtherControllers": {chart: Tenant, reason: "there are two groups", set: []string{"controllers={karpenter,nodes}"},
			want: []string{"/controllers/1"}},
		"CapacityType": {chart: Tenant, reason: "servers are no spot instances", set: []string{"provider.capacityType=spot"},
			want: []string{"/provider/capacityType", "reserved"}},
		"TwoClusters": {chart: Tenant, reason: "in one cluster there is no kubeconfig",
			set:  []string{"kubeconfig.inCluster=true", "kubeconfig.secretName=acme"},
			want: []string{"kubeconfig.inCluster is true", "set inCluster to false"}},
		"NobodyHasRights": {chart: Tenant, reason: "the provider would be refused everything",
			set: []string{"target=tenant", "access.createServiceAccount=false"}, want: []string{"access.subject is empty", "Name the user"}},
		"TwoSubjects": {chart: Tenant, reason: "one of them would have no rights",
			set: []string{"access.subject.kind=User", "access.subject.name=me"}, want: []string{"only one of them"}},
		"HomelessAccount": {chart: Tenant, reason: "the API server refuses the binding",
			set:  []string{"access.createServiceAccount=false", "access.subject.kind=ServiceAccount", "access.subject.name=me"},
			want: []string{"ServiceAccount me without a namespace"}},
		"UserWithNamespace": {chart: Tenant, reason: "the API server refuses the binding",
			set: []string{"access.createServiceAccount=false", "access.subject.kind=User", "access.subject.name=me",
				"access.subject.namespace=here"}, want: []string{"User me with a namespace"}},
		"NobodyHasGates": {chart: Tenant, reason: "the gates are Karpenter's",
			set: []string{"controllers={dra}", "provider.featureGates.CapacityBuffer=true"}, want: []string{"does not have karpenter"}},
		"TenantFlag": {chart: Tenant, reason: "the kubeconfig would not be the one that is mounted",
			set: []string{"provider.extraArgs={--tenant-kubeconfig=/x}"}, want: []string{"--tenant-kubeconfig=/x", "leave it out"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"template", release, tc.chart, "--namespace=" + namespace}
			for _, value := range tc.set {
				args = append(args, "--set="+value)
			}
			_, problems, err := helm(t, args...)
			if err == nil {
				t.Fatalf("%s: %v was taken", tc.reason, tc.set)
			}
			for _, want := range tc.want {
				if !strings.Contains(problems, want) {
					t.Errorf("%s: the refusal does not say %q:\n%s", tc.reason, want, problems)
				}
			}
		})
	}
}
