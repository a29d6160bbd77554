// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

const (
	exampleToken = "abcdef.0123456789abcdef"
	exampleHash  = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

func exampleJoin(t testing.TB) Join {
	t.Helper()
	token, err := ParseToken(exampleToken)
	if err != nil {
		t.Fatal(err)
	}
	return Join{
		NodeName:          "gpu-7f3k2",
		ProviderID:        "metal3://hosts/server-1/gpu-7f3k2",
		APIServerEndpoint: "10.0.0.1:6443",
		CACertHashes:      []string{exampleHash},
		Token:             token,
		Labels: map[string]string{
			"karpenter.metal3.io/node-type":    "h100-8x",
			"node.kubernetes.io/instance-type": "h100-8x",
		},
		Taints: []corev1.Taint{
			{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute},
			{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule},
		},
		KubeletArgs: map[string]string{"kube-reserved": "cpu=100m,memory=1Gi", "max-pods": "200"},
	}
}

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*Join)
		want   string
	}{
		"Valid":        {"the example is complete", func(*Join) {}, ""},
		"DNSEndpoint":  {"an endpoint may be a name", func(j *Join) { j.APIServerEndpoint = "api.tenant.example:443" }, ""},
		"IPv6Endpoint": {"an endpoint may be an IPv6 address", func(j *Join) { j.APIServerEndpoint = "[fd00::1]:6443" }, ""},
		"IPv6Bare": {"which colon would be the port's", func(j *Join) { j.APIServerEndpoint = "fd00::1:6443" },
			"is not host:port, such as 10.0.0.1:6443 or [2001:db8::1]:6443"},
		"IPv6Zone": {"a zone means something on one machine only", func(j *Join) { j.APIServerEndpoint = "[fe80::1%eth0]:6443" },
			"neither an IP address nor a DNS name"},
		"NoNodeName":       {"a Node needs a name", func(j *Join) { j.NodeName = "" }, `node name "" is not valid`},
		"LongNodeName":     {"it is a hostname too", func(j *Join) { j.NodeName = strings.Repeat("a", 64) }, "longer than the 63 characters"},
		"NoProviderID":     {"Karpenter finds the Node by it", func(j *Join) { j.ProviderID = "" }, "provider ID is empty"},
		"EndpointURL":      {"kubeadm takes no URL", func(j *Join) { j.APIServerEndpoint = "https://10.0.0.1:6443" }, "is not host:port"},
		"EndpointNoPort":   {"kubeadm needs the port", func(j *Join) { j.APIServerEndpoint = "10.0.0.1" }, "is not host:port"},
		"EndpointNoHost":   {"an empty host would be the server itself", func(j *Join) { j.APIServerEndpoint = ":6443" }, "is not host:port"},
		"EndpointBadPort":  {"ports end at 65535", func(j *Join) { j.APIServerEndpoint = "10.0.0.1:70000" }, "no port between 1 and 65535"},
		"EndpointPortZero": {"nothing listens on port 0", func(j *Join) { j.APIServerEndpoint = "10.0.0.1:0" }, "no port between 1 and 65535"},
		"EndpointBadHost": {"a host is an address or a name", func(j *Join) { j.APIServerEndpoint = "a_b:6443" },
			"neither an IP address nor a DNS name"},
		"NoHash":    {"without a pin any cluster would do", func(j *Join) { j.CACertHashes = nil }, "there is no CA hash"},
		"ShortHash": {"a hash is complete", func(j *Join) { j.CACertHashes = []string{"sha256:00ff"} }, `CA hash "sha256:00ff" is not`},
		"OtherHash": {"kubeadm knows sha256 only", func(j *Join) { j.CACertHashes = []string{"md5:" + exampleHash[7:]} }, "CA hash"},
		"NoToken":   {"nothing joins without a token", func(j *Join) { j.Token = Token{} }, "join token is empty"},
		"LabelKey": {"the kubelet would not start", func(j *Join) { j.Labels["a b"] = "c" },
			`labels["a b"]: Invalid value: "a b": cannot be the key`},
		"LabelValue": {"the kubelet would not start", func(j *Join) { j.Labels["a"] = "b,c" },
			`labels["a"]: Invalid value: "b,c": cannot be the value`},
		"TaintEffect": {"a taint without effect does nothing", func(j *Join) { j.Taints[0].Effect = "" },
			`taints[0].effect: Unsupported value: ""`},
		"TaintKey":   {"the API would refuse the Node", func(j *Join) { j.Taints[0].Key = "" }, `taints[0].key: Invalid value: ""`},
		"TaintValue": {"the API would refuse the Node", func(j *Join) { j.Taints[0].Value = "a b" }, `taints[0].value: Invalid value: "a b"`},
		"ReservedArg": {"two provider IDs would contradict", func(j *Join) { j.KubeletArgs["provider-id"] = "x" },
			`"provider-id" cannot be given: it is set from the provider ID`},
		"DashedArg": {"kubeadm adds the dashes", func(j *Join) { j.KubeletArgs["--max-pods"] = "3" }, "without leading dashes"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := exampleJoin(t)
			tc.change(&j)
			err := j.Validate()
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%s: unexpected error: %v", tc.reason, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s: error %v does not say %q", tc.reason, err, tc.want)
			}
			if _, buildErr := JoinUserData(j); (buildErr == nil) != (err == nil) {
				t.Errorf("%s: JoinUserData disagrees with Validate: %v", tc.reason, buildErr)
			}
		})
	}
}

func TestSelfSettableLabels(t *testing.T) {
	cases := map[string]struct {
		reason   string
		key      string
		settable bool
	}{
		"Plain":           {"no namespace, no restriction", "rack", true},
		"Other":           {"other domains are free", "karpenter.metal3.io/node-type", true},
		"LookAlike":       {"a suffix must be a whole domain label", "notkubernetes.io/x", true},
		"Zone":            {"listed", corev1.LabelTopologyZone, true},
		"InstanceType":    {"listed", corev1.LabelInstanceTypeStable, true},
		"NodeDomain":      {"node.kubernetes.io is the kubelet's", "node.kubernetes.io/pool", true},
		"SubNodeDomain":   {"so are its subdomains", "team.node.kubernetes.io/pool", true},
		"Role":            {"a kubelet may not call itself a control plane", "node-role.kubernetes.io/control-plane", false},
		"Restriction":     {"made to keep kubelets out", "node-restriction.kubernetes.io/pci", false},
		"TopologyOther":   {"only zone and region are listed", "topology.kubernetes.io/rack", false},
		"Experimental":    {"x-k8s.io is not below k8s.io", "kwok.x-k8s.io/node", true},
		"KubernetesOther": {"k8s.io is Kubernetes' own too", "example.k8s.io/node", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{}
			if tc.settable {
				want[tc.key] = "v"
			}
			if diff := cmp.Diff(want, SelfSettableLabels(map[string]string{tc.key: "v"})); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
