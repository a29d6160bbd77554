// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	gocmp "cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter"
)

// TestPodValues: what a value makes of the pods. A value of a program wins over that of all.
func TestPodValues(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	image := func(pod corev1.PodTemplateSpec) any { return pod.Spec.Containers[0].Image }
	arguments := func(pod corev1.PodTemplateSpec) any {
		return slices.Collect(func(yield func(string) bool) {
			for _, argument := range pod.Spec.Containers[0].Args {
				if strings.HasPrefix(argument, "--v=") && !yield(argument) {
					return
				}
			}
		})
	}
	secrets := func(pod corev1.PodTemplateSpec) any { return pod.Spec.ImagePullSecrets }
	priority := func(pod corev1.PodTemplateSpec) any { return pod.Spec.PriorityClassName }
	selector := func(pod corev1.PodTemplateSpec) any { return pod.Spec.NodeSelector }
	tolerations := func(pod corev1.PodTemplateSpec) any { return pod.Spec.Tolerations }
	affinity := func(pod corev1.PodTemplateSpec) any { return pod.Spec.Affinity }
	memoryLimit := corev1.EnvVar{Name: "GOMEMLIMIT", ValueFrom: &corev1.EnvVarSource{
		ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1")}}}
	environment := func(pod corev1.PodTemplateSpec) any { return pod.Spec.Containers[0].Env }
	mounts := func(pod corev1.PodTemplateSpec) any { return pod.Spec.Containers[0].VolumeMounts }
	volumes := func(pod corev1.PodTemplateSpec) any {
		var names []string
		for _, volume := range pod.Spec.Volumes {
			names = append(names, volume.Name)
		}
		return names
	}
	spread := func(pod corev1.PodTemplateSpec) any { return pod.Spec.TopologySpreadConstraints }
	label := func(key string) func(corev1.PodTemplateSpec) any {
		return func(pod corev1.PodTemplateSpec) any { return pod.Labels[key] }
	}
	annotation := func(key string) func(corev1.PodTemplateSpec) any {
		return func(pod corev1.PodTemplateSpec) any { return pod.Annotations[key] }
	}
	pods := map[string]string{Management: "manager", Tenant: "provider"}
	for name, tc := range map[string]struct {
		reason string
		chart  string
		set    []string
		pod    string // the chart's first, if it is not named
		got    func(corev1.PodTemplateSpec) any
		want   any
	}{
		"Repository": {reason: "in place of registry and name", chart: Tenant,
			set: []string{`image.repository="example.com/p"`}, got: image,
			want: "example.com/p:v0.1.0"},
		"RepositoryAndTag": {reason: "as helm create has it", chart: Tenant,
			set: []string{`image.repository="example.com/p"`, `image.tag="v1"`},
			got: image, want: "example.com/p:v1"},
		"Digest": {reason: "it says more than a tag", chart: Tenant,
			set: []string{`image.digest="` + digest + `"`, `image.tag="v1"`}, got: image,
			want: "ghcr.io/karpenter-provider-metal3/provider@" + digest},
		"Reference": {reason: "the name of before", chart: Tenant, set: []string{`provider.image="example.com/p:v1"`}, got: image,
			want: "example.com/p:v1"},
		"OwnReference": {reason: "the form of before", chart: Management, set: []string{`manager.image="example.com/m:v1"`}, got: image,
			want: "example.com/m:v1"},
		"EmptyReference": {reason: "the default of before", chart: Management, set: []string{`manager.image=""`}, got: image,
			want: "ghcr.io/karpenter-provider-metal3/manager:v0.1.0"},
		"OwnRepository": {reason: "each program has an image", chart: Management, pod: "webhook",
			set: []string{`webhook.image={"repository":"example.com/w"}`, `image.tag="v2"`}, got: image, want: "example.com/w:v2"},
		"OwnDigest": {reason: "of the project's repository", chart: Management,
			set: []string{`manager.image.digest="` + digest + `"`}, got: image,
			want: "ghcr.io/karpenter-provider-metal3/manager@" + digest},
		"LogLevel": {reason: "Karpenter's name", chart: Management,
			set: []string{`logLevel="debug"`}, got: arguments, want: []string{"--v=2"}},
		"LogLevelOfTenant": {reason: "Karpenter's name", chart: Tenant,
			set: []string{`logLevel="info"`}, got: arguments, want: []string{"--v=0"}},
		"Verbosity": {reason: "the name of before", chart: Tenant,
			set: []string{`logging.verbosity=4`}, got: arguments, want: []string{"--v=4"}},
		"PullSecrets": {reason: "both names, each once", chart: Management, pod: "webhook",
			set: []string{`imagePullSecrets=[{"name":"a"},{"name":"b"}]`, `image.pullSecrets=["b","c"]`},
			got: secrets, want: []corev1.LocalObjectReference{{Name: "a"}, {Name: "b"}, {Name: "c"}}},
		"PullSecretsOfTenant": {reason: "as a pod has them", chart: Tenant, set: []string{`imagePullSecrets=[{"name":"a"}]`}, got: secrets,
			want: []corev1.LocalObjectReference{{Name: "a"}}},
		"Priority": {reason: "the default of all", chart: Management, set: nil, got: priority, want: "system-cluster-critical"},
		"PriorityOfAll": {reason: "no program has its own", chart: Management, pod: "webhook", set: []string{`priorityClassName="high"`},
			got: priority, want: "high"},
		"OwnPriority": {reason: "it wins", chart: Management,
			set: []string{`priorityClassName="high"`, `manager.priorityClassName="higher"`},
			got: priority, want: "higher"},
		"NoPriority": {reason: "the cluster's default, as before", chart: Management,
			set: []string{`manager.priorityClassName=""`}, got: priority,
			want: ""},
		"PriorityOfTenant": {reason: "helm create's name", chart: Tenant,
			set: []string{`priorityClassName="high"`}, got: priority, want: "high"},
		"OwnPriorityOfTenant": {reason: "it wins", chart: Tenant,
			set: []string{`priorityClassName="high"`, `provider.priorityClassName="higher"`},
			got: priority, want: "higher"},
		"NodeSelector": {reason: "helm create's name", chart: Tenant, set: []string{`nodeSelector={"a":"b"}`}, got: selector,
			want: map[string]string{"a": "b"}},
		"OwnNodeSelector": {reason: "it wins", chart: Tenant, set: []string{`nodeSelector={"a":"b"}`, `provider.nodeSelector={"c":"d"}`},
			got: selector, want: map[string]string{"c": "d"}},
		"Tolerations": {reason: "helm create's name", chart: Tenant, set: []string{`tolerations=[{"key":"a"}]`}, got: tolerations,
			want: []corev1.Toleration{{Key: "a"}}},
		"Affinity": {reason: "helm create's name", chart: Tenant, set: []string{`affinity={"nodeAffinity":{}}`}, got: affinity,
			want: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}},
		"PodLabels": {reason: "the provider's win", chart: Tenant,
			set: []string{`podLabels.a="b"`, `provider.podLabels.a="c"`}, got: label("a"),
			want: "c"},
		"PodLabelsOfAll": {reason: "helm create's name", chart: Tenant, set: []string{`podLabels.a="b"`, `provider.podLabels.c="d"`},
			got: label("a"), want: "b"},
		"PartOf": {reason: "it may be a part of yours", chart: Management,
			set: []string{`additionalLabels={"app.kubernetes.io/part-of":"p"}`},
			got: label("app.kubernetes.io/part-of"), want: "p"},
		"PodAnnotations": {reason: "the provider's win", chart: Tenant,
			set: []string{`podAnnotations.a="b"`, `provider.podAnnotations.a="c"`},
			got: annotation("a"), want: "c"},
		"PodAnnotationsOfAll": {reason: "helm create's name", chart: Tenant,
			set: []string{`podAnnotations.a="b"`}, got: annotation("a"), want: "b"},
		"Env": {reason: "for all programs", chart: Management, pod: "webhook", set: []string{`extraEnv=[{"name":"A","value":"b"}]`},
			got: environment, want: []corev1.EnvVar{memoryLimit, {Name: "A", Value: "b"}}},
		"MemoryLimit": {reason: "one's own wins", chart: Management, pod: "manager",
			set: []string{`extraEnv=[{"name":"GOMEMLIMIT","value":"1GiB"}]`}, got: environment,
			want: []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: "1GiB"}}},
		"MemoryLimitOfTenant": {reason: "one's own wins", chart: Tenant, set: []string{`extraEnv=[{"name":"GOMEMLIMIT","value":"1GiB"}]`},
			got: environment, want: []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: "1GiB"}}},
		"EnvOfTenant": {reason: "where its value is", chart: Tenant,
			set: []string{`extraEnv=[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}]`}, got: environment,
			want: []corev1.EnvVar{memoryLimit,
				{Name: "A", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}}},
		"Volumes": {reason: "without any of the chart", chart: Management, set: []string{`extraVolumes=[{"name":"a","emptyDir":{}}]`},
			got: volumes, want: []string{"a"}},
		"VolumesOfTenant": {reason: "beside the kubeconfig", chart: Tenant, set: []string{`extraVolumes=[{"name":"a","emptyDir":{}}]`},
			got: volumes, want: []string{"tenant", "a"}},
		"Mounts": {reason: "beside the certificates", chart: Management, pod: "webhook",
			set: []string{`webhook.certificates.source="certManager"`, `extraVolumes=[{"name":"a","emptyDir":{}}]`,
				`extraVolumeMounts=[{"name":"a","mountPath":"/a"}]`}, got: mounts,
			want: []corev1.VolumeMount{{Name: "certificates", MountPath: "/certificates", ReadOnly: true}, {Name: "a", MountPath: "/a"}}},
		"MountsInOneCluster": {reason: "without any of the chart", chart: Tenant,
			set: []string{`kubeconfig.inCluster=true`, `extraVolumes=[{"name":"a","emptyDir":{}}]`,
				`extraVolumeMounts=[{"name":"a","mountPath":"/a"}]`}, got: mounts, want: []corev1.VolumeMount{{Name: "a", MountPath: "/a"}}},
		"Spread": {reason: "without a selector, it is that of the pods", chart: Management, pod: "webhook",
			set: []string{`topologySpreadConstraints=[{"maxSkew":2,"topologyKey":"rack","whenUnsatisfiable":"DoNotSchedule"}]`},
			got: spread, want: []corev1.TopologySpreadConstraint{{MaxSkew: 2, TopologyKey: "rack", WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": Management,
					"app.kubernetes.io/instance": release, "app.kubernetes.io/component": "webhook"}}}}},
		"SpreadOfTenant": {reason: "with a selector, it is that", chart: Tenant,
			set: []string{`topologySpreadConstraints=[{"maxSkew":2,"topologyKey":"rack","whenUnsatisfiable":"DoNotSchedule","labelSelector":{}}]`},
			got: spread, want: []corev1.TopologySpreadConstraint{{MaxSkew: 2, TopologyKey: "rack", WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			var flags []string
			for _, value := range tc.set {
				flags = append(flags, "--set-json="+value)
			}
			for _, deployment := range ofKind[appsv1.Deployment](t, render(t, tc.chart, flags...), "Deployment") {
				pod := deployment.Spec.Template
				if pod.Spec.Containers[0].Name != gocmp.Or(tc.pod, pods[tc.chart]) {
					continue
				}
				if diff := cmp.Diff(tc.want, tc.got(pod)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
				return
			}
			t.Error("there is no such pod")
		})
	}
}

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
		"ReadersInClear": {chart: Management, reason: "the page would not start", want: []string{"/page/server"},
			set: []string{"page.server=http://proxy.example.com"}},
		"VolumeOfThePage": {chart: Management, reason: "the API server refuses the pods", want: []string{"extraVolumes has cluster"},
			set: []string{"extraVolumes[0].name=cluster", "extraVolumes[0].configMap.name=x"}},
		"UnusedIssuer": {chart: Management, reason: "an issuer that is not used is a mistake",
			set:  []string{"webhook.certificates.certManager.issuerRef.name=ca"},
			want: []string{"webhook.certificates.source is self", "Set the source to certManager"}},
		"NamelessIssuer": {chart: Management, reason: "cert-manager would not find it",
			set:  []string{"webhook.certificates.source=certManager", "webhook.certificates.certManager.issuerRef.kind=ClusterIssuer"},
			want: []string{"issuerRef has no name"}},
		"NobodyToCertify": {chart: Management, reason: "a certificate without a webhook",
			set:  []string{"webhook.enabled=false", "webhook.certificates.source=certManager"},
			want: []string{"webhook.enabled is false", "Enable the webhook"}},
		"KilledTooEarly": {chart: Management, reason: "requests would fail at each rollout",
			set:  []string{"webhook.shutdownDelaySeconds=60"},
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
		"NobodyHasGates": {chart: Tenant, reason: "the gates are of that controller",
			set: []string{"controllers={dra}", "provider.featureGates.CapacityBuffer=true"}, want: []string{"does not have karpenter"}},
		"DigestForm": {chart: Tenant, reason: "kubelet could not pull it", set: []string{"image.digest=sha256:0123"},
			want: []string{"/image/digest"}},
		"RepositoryWithTag": {chart: Tenant, reason: "the tag would be added to it",
			set:  []string{"image.repository=example.com/provider:v1"},
			want: []string{"/image/repository"}},
		"TwoImages": {chart: Tenant, reason: "one of them would not be pulled",
			set:  []string{"provider.image=example.com/provider:v1", "image.repository=example.com/other"},
			want: []string{"provider.image and image.repository", "Leave one out"}},
		"OneRepository": {chart: Management, reason: "there are two images", set: []string{"image.repository=example.com/manager"},
			want: []string{"/image", "'repository' not allowed"}},
		"PartOfAnImage": {chart: Management, reason: "a part that is none", set: []string{"manager.image.registry=example.com"},
			want: []string{"/manager/image", "'registry' not allowed"}},
		"LevelName": {chart: Management, reason: "errors are always logged", set: []string{"logLevel=error"},
			want: []string{"/logLevel", "debug"}},
		"TwoLevels": {chart: Management, reason: "they may differ", set: []string{"logLevel=info", "logging.verbosity=2"},
			want: []string{"logLevel is info and logging.verbosity is 2", "Set one of them"}},
		"TwoLevelsOfTenant": {chart: Tenant, reason: "they may differ", set: []string{"logLevel=debug", "logging.verbosity=4"},
			want: []string{"logLevel is debug and logging.verbosity is 4"}},
		"LongName": {chart: Management, reason: "a Service could not have it", set: []string{"fullnameOverride=" + strings.Repeat("a", 48)},
			want: []string{"/fullnameOverride"}},
		"NameOfAService": {chart: Tenant, reason: "a Service begins with a letter", set: []string{"nameOverride=3metal"},
			want: []string{"/nameOverride"}},
		"SecretName": {chart: Management, reason: "a pod has a list of objects", set: []string{"imagePullSecrets={registry}"},
			want: []string{"/imagePullSecrets/0", "object"}},
		"NoAccount": {chart: Management, reason: "the rights would be those of no pod",
			set:  []string{"manager.serviceAccount.create=false"},
			want: []string{"manager.serviceAccount.name is empty", "Name an account"}},
		"NoAccountOfTenant": {chart: Tenant, reason: "the rights would be those of no pod", set: []string{"serviceAccount.create=false"},
			want: []string{"serviceAccount.name is empty", "Name an account"}},
		"OneAccount": {chart: Management, reason: "the webhook would have the rights of the manager",
			set:  []string{"manager.serviceAccount.name=metal", "webhook.serviceAccount.name=metal"},
			want: []string{"are both metal", "Give each its own"}},
		"AccountAtTheTop": {chart: Management, reason: "there are two accounts", set: []string{"serviceAccount.create=false"},
			want: []string{"'serviceAccount' not allowed"}},
		"UnknownAccount": {chart: Tenant, reason: "the policy about Secrets would not hold for it",
			set:  []string{"serviceAccount.name=default"},
			want: []string{"serviceAccount.name is default", "begin with karpenter-metal3-provider-"}},
		"ForeignAnnotations": {chart: Management, reason: "the chart does not write the account",
			set:  []string{"webhook.serviceAccount.create=false", "webhook.serviceAccount.name=w", "webhook.serviceAccount.annotations.a=b"},
			want: []string{"webhook.serviceAccount.create is false", "Annotate the account itself"}},
		"ForeignAnnotationsOfTenant": {chart: Tenant, reason: "the chart does not write the account",
			set: []string{"serviceAccount.create=false", "serviceAccount.name=karpenter-metal3-provider-x",
				"provider.serviceAccount.annotations.a=b"}, want: []string{"Annotate the account itself"}},
		"LabelOfASelector": {chart: Management, reason: "Services would select no pod",
			set: []string{`podLabels.app\.kubernetes\.io/name=x`}, want: []string{"podLabels has app.kubernetes.io/name", "Leave it out"}},
		"LabelOfASelectorOfTenant": {chart: Tenant, reason: "the Deployment would select no pod",
			set: []string{`provider.podLabels.app\.kubernetes\.io/instance=x`}, want: []string{"provider.podLabels has app.kubernetes.io/instance"}},
		"LabelOfHelm": {chart: Tenant, reason: "Helm would not find its objects",
			set: []string{`additionalLabels.app\.kubernetes\.io/managed-by=x`}, want: []string{"additionalLabels has app.kubernetes.io/managed-by"}},
		"LabelForm": {chart: Management, reason: "the API server refuses it", set: []string{"additionalLabels.team=a b"},
			want: []string{"/additionalLabels/team"}},
		"NamelessVariable": {chart: Management, reason: "the API server refuses it", set: []string{"extraEnv[0].value=x"},
			want: []string{"/extraEnv/0", "name"}},
		"VariableOfAFlag": {chart: Management, reason: "the flag would win",
			set:  []string{"extraEnv[0].name=KARPENTER_METAL3_METRICS_SECURE", "extraEnv[0].value=x"},
			want: []string{"extraEnv has KARPENTER_METAL3_METRICS_SECURE", "--metrics-secure", "leave it out"}},
		"VariableOfAFlagOfTenant": {chart: Tenant, reason: "the provider would be in another namespace",
			set:  []string{"extraEnv[0].name=KARPENTER_METAL3_TENANT_KUBECONFIG"},
			want: []string{"stands in for --tenant-kubeconfig"}},
		"VariableTwice": {chart: Management, reason: "one would not be seen", set: []string{"extraEnv[0].name=A", "extraEnv[1].name=A"},
			want: []string{"extraEnv has A twice"}},
		"VolumeOfTheChart": {chart: Management, reason: "the API server refuses the pods",
			set:  []string{"extraVolumes[0].name=certificates", "extraVolumes[0].configMap.name=x"},
			want: []string{"extraVolumes has certificates", "another one"}},
		"VolumeOfTheTenant": {chart: Tenant, reason: "the API server refuses the pods",
			set: []string{"extraVolumes[0].name=tenant", "extraVolumes[0].configMap.name=x"}, want: []string{"extraVolumes has tenant"}},
		"VolumeTwice": {chart: Tenant, reason: "the API server refuses the pods",
			set: []string{"extraVolumes[0].name=a", "extraVolumes[0].configMap.name=x",
				"extraVolumes[1].name=a", "extraVolumes[1].configMap.name=y"},
			want: []string{"extraVolumes has a twice"}},
		"VolumeOfNothing": {chart: Tenant, reason: "it says not where it is from", set: []string{"extraVolumes[0].name=a"},
			want: []string{"/extraVolumes/0"}},
		"MountOfNothing": {chart: Management, reason: "the API server refuses the pods",
			set:  []string{"extraVolumeMounts[0].name=a", "extraVolumeMounts[0].mountPath=/a"},
			want: []string{"extraVolumeMounts has a", "Add the volume"}},
		"MountOverTheKubeconfig": {chart: Tenant, reason: "the provider would read another file",
			set: []string{"extraVolumes[0].name=a", "extraVolumes[0].configMap.name=x", "extraVolumeMounts[0].name=a",
				"extraVolumeMounts[0].mountPath=/tenant/"}, want: []string{"extraVolumeMounts has /tenant/", "Choose another path"}},
		"Spread": {chart: Management, reason: "the API server refuses the pods",
			set:  []string{"topologySpreadConstraints[0].topologyKey=rack", "topologySpreadConstraints[0].maxSkew=1"},
			want: []string{"/topologySpreadConstraints/0", "whenUnsatisfiable"}},
		"DefaultConstraintWithSelector": {chart: Tenant, reason: "the scheduler does not start with it, and neither does the provider",
			set: []string{"schedulerConfig.defaultConstraints[0].topologyKey=rack", "schedulerConfig.defaultConstraints[0].maxSkew=1",
				"schedulerConfig.defaultConstraints[0].whenUnsatisfiable=DoNotSchedule",
				"schedulerConfig.defaultConstraints[0].labelSelector.matchLabels.app=web"},
			want: []string{"/schedulerConfig/defaultConstraints/0", "'labelSelector' not allowed"}},
		"SchedulerConfigTwice": {chart: Tenant, reason: "the ConfigMap would not have it",
			set:  []string{"provider.extraArgs={--scheduler-config=podTopologySpread: null}"},
			want: []string{"--scheduler-config", "Use the value for it"}},
		"NoSuchGate": {chart: Tenant, reason: "the provider would not start", set: []string{"provider.featureGates.CapacityBuffers=true"},
			want: []string{"invalid propertyName 'CapacityBuffers'", "'CapacityBuffer'"}},
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

// TestFeatureGates: the chart takes those that the provider has.
func TestFeatureGates(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(Tenant, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			Provider struct {
				Properties struct {
					FeatureGates struct{ PropertyNames struct{ Enum []string } }
				}
			}
		}
	}
	if err := json.Unmarshal(content, &schema); err != nil {
		t.Fatal(err)
	}
	want := []string{"AllAlpha", "AllBeta"} // component-base has them
	for feature := range karpenter.Features() {
		want = append(want, string(feature))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, schema.Properties.Provider.Properties.FeatureGates.PropertyNames.Enum); diff != "" {
		t.Errorf("provider.featureGates in values.schema.json (-provider +chart):\n%s", diff)
	}
}
