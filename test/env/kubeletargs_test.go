// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import "testing"

func TestKubeletArgsValidation(t *testing.T) {
	namespace := environment.Namespace(t)
	const setByTheJoin = "are set by the join"
	for name, tc := range map[string]struct{ reason, args, want string }{
		"Good": {"what kubelet has", "{max-pods: '200', feature-gates: 'A=true,B=false', eviction-hard: 'memory.available<100Mi', " +
			"resolv-conf: ''}", ""},
		"Dashes":   {"kubeadm adds them", "{--max-pods: '200'}", "Invalid value: name kubelet arguments without leading dashes"},
		"Identity": {"the manager gives it", "{provider-id: x}", setByTheJoin},
		"Address":  {"the network gives it", "{node-ip: 10.0.0.1}", setByTheJoin},
		"Cluster":  {"it would join another one", "{max-pods: '1', kubeconfig: /mine}", setByTheJoin},
		"Labels":   {"there is a field for them", "{node-labels: a=b}", "instead of node-labels and register-with-taints use labels and taints"},
		"Reserved": {"Karpenter reckons with the type", "{kube-reserved: cpu=1}", "instead of kube-reserved the overhead of the NodeType"},
		"Blank": {"it would be two arguments", "{v: '4 --kubeconfig=/mine'}",
			"spec.kubeletArgs[v]: Invalid value: \"4 --kubeconfig=/mine\": the value of a kubelet argument holds no blank"},
		"Newline":   {"it would be two lines", `{v: "4\nX=1"}`, "holds no blank"},
		"Quote":     {"it would end the line", `{v: '4"'}`, "holds no blank, quote"},
		"Apostroph": {"it would end the line", `{v: "4'"}`, "holds no blank, quote"},
		"Backslash": {"it would change what follows", `{v: '4\'}`, "backslash"},
		"Expansion": {"a variable would be put in", "{v: $HOME}", "dollar sign"},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, tc.reason, tc.want,
				refusal(t, object(t, "Machine", "m", namespace, "{nodeTypeRef: {name: h100-8x}, tenantClusterRef: {name: tenant}, kubeletArgs: "+
					tc.args+"}")))
			check(t, tc.reason, tc.want, refusal(t, object(t, "MetalNodeClass", "c", "", "{kubeletArgs: "+tc.args+"}")))
		})
	}
	t.Run("StandAlone", func(t *testing.T) {
		check(t, "it becomes no node", "without tenantClusterRef it becomes none: set it, or leave kubeletArgs out",
			refusal(t, object(t, "Machine", "m", namespace, "{nodeTypeRef: {name: h100-8x}, kubeletArgs: {max-pods: '200'}}")))
	})
}
