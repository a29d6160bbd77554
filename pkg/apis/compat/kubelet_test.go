// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func nodesWith(t *testing.T, config string) *v1alpha1.PrivateNodes {
	t.Helper()
	nodes := &v1alpha1.PrivateNodes{}
	if err := yaml.UnmarshalStrict([]byte("{kubelet: {config: "+config+"}}"), nodes); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// TestKubeletConfig: what a kubelet is told by its configuration it is told by its arguments, or it is said why not.
func TestKubeletConfig(t *testing.T) {
	const configMap = ": the kubelet has no argument for it: write it into the ConfigMap kubelet-config of kube-system " +
		"in the tenant, which kubeadm join reads"
	const noMap = ": must be an object whose values are texts, numbers or booleans"
	for name, tc := range map[string]struct {
		reason, config string
		want           []string
	}{
		"None":  {"a vcluster.yaml without the field", "null", nil},
		"Empty": {"it says nothing", "{}", nil},
		"Null":  {"as left out", "{maxPods: null}", nil},
		"Kind": {"a whole KubeletConfiguration",
			"{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, maxPods: 5}", []string{"max-pods=5"}},
		"Scalars": {"as they were written", "{maxPods: 200, cpuCFSQuota: false, topologyManagerPolicy: single-numa-node, " +
			"eventRecordQPS: 0, imageMinimumGCAge: 2m0s, resolvConf: ''}",
			[]string{"cpu-cfs-quota=false", "event-qps=0", "minimum-image-ttl-duration=2m0s", "max-pods=200", "resolv-conf=",
				"topology-manager-policy=single-numa-node"}},
		"Lists": {"one argument", "{clusterDNS: [10.0.0.10, fd00::10], enforceNodeAllocatable: []}",
			[]string{"cluster-dns=10.0.0.10,fd00::10", "enforce-node-allocatable="}},
		"Pairs": {"in an order that does not change", "{featureGates: {B: false, A: true}, systemReserved: {memory: 1Gi, " +
			"cpu: 500m}, evictionHard: {nodefs.available: 5%, memory.available: 200Mi}}",
			[]string{"eviction-hard=memory.available<200Mi,nodefs.available<5%", "feature-gates=A=true,B=false",
				"system-reserved=cpu=500m,memory=1Gi"}},
		"Nested": {"the path is that of an argument",
			"{authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 2m}}, logging: {verbosity: 4}}",
			[]string{"anonymous-auth=false", "authentication-token-webhook-cache-ttl=2m", "v=4"}},
		"ReservedMemory": {"a list of objects", "{memoryManagerPolicy: Static, reservedMemory: [{numaNode: 0, limits: " +
			"{memory: 1Gi, hugepages-1Gi: 2Gi}}, {numaNode: 1, limits: {memory: 1124Mi}}]}",
			[]string{"memory-manager-policy=Static", "reserved-memory=0:hugepages-1Gi=2Gi,memory=1Gi;1:memory=1124Mi"}},
		"OneOption": {"the argument takes it", "{cpuManagerPolicyOptions: {full-pcpus-only: 'true'}}",
			[]string{"cpu-manager-policy-options=full-pcpus-only=true"}},
		"TwoOptions": {"the argument would have to be there twice",
			"{cpuManagerPolicyOptions: {full-pcpus-only: 'true', a: b}}", []string{"cpuManagerPolicyOptions" + configMap}},
		"NoArgument": {"kubeadm's ConfigMap says it",
			"{shutdownGracePeriod: 30s, memorySwap: {swapBehavior: LimitedSwap}, tracing: {}}",
			[]string{"memorySwap.swapBehavior" + configMap, "shutdownGracePeriod" + configMap}},
		"Misspelled": {"it is no field", "{maxpods: 5}", []string{"maxpods" + configMap}},
		"OwnPlaces": {"the API has a field for them, or decides it",
			"{kubeReserved: {cpu: 1}, registerWithTaints: [], registerNode: true, providerID: x}",
			[]string{"kubeReserved: set overhead.kubeReserved of the NodeType, which Karpenter reckons with",
				"providerID: the join sets it: leave it out", "registerNode: the join sets it: leave it out",
				"registerWithTaints: write it into the taints of the pools"}},
		"Wrong": {"no kubelet has such values", "{maxPods: [5], clusterDNS: 10.0.0.10, evictionHard: [a, b], " +
			"reservedMemory: [{limits: {memory: 1Gi}}], featureGates: {A: {}}, cpuManagerPolicyOptions: []}", []string{
			`wrong: clusterDNS: Invalid value: "\"10.0.0.10\"": must be a list of texts`,
			`wrong: cpuManagerPolicyOptions: Invalid value: "[]"` + noMap,
			`wrong: evictionHard: Invalid value: "[\"a\",\"b\"]"` + noMap,
			`wrong: featureGates: Invalid value: "{\"A\":{}}"` + noMap,
			`wrong: maxPods: Invalid value: "[5]": must be a text, a number or a boolean`,
			`wrong: reservedMemory: Invalid value: "[{\"limits\":{\"memory\":\"1Gi\"}}]": must be a list of ` +
				"{numaNode: NUMBER, limits: {memory: QUANTITY}}",
		}},
		"Long": {"the schema of a MetalNodeClass refuses it",
			"{staticPodPath: " + strings.Repeat("x", v1alpha1.MaxKubeletArgLength+1) + "}",
			[]string{"wrong: staticPodPath: Too long: may not be more than 1024 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := ReadKubeletConfig(nodesWith(t, tc.config))
			var got []string
			for _, arg := range config.Args {
				got = append(got, arg.Name+"="+arg.Value)
			}
			const prefix = "spec.privateNodes.kubelet.config."
			for _, set := range config.WithoutEffect {
				got = append(got, strings.TrimPrefix(set.Path.String(), prefix)+": "+set.Instead)
			}
			for _, err := range config.Wrong {
				got = append(got, strings.Replace("wrong: "+err.Error(), prefix, "", 1))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	if config := ReadKubeletConfig(nil); len(config.Args) > 0 {
		t.Errorf("of no privateNodes it reads %+v", config)
	}
	long := ReadKubeletConfig(nodesWith(t, "{a: "+strings.Repeat("x", maxOpaque)+"}"))
	if len(long.WithoutEffect) != 1 || !long.WithoutEffect[0].TooLong {
		t.Errorf("of a huge configuration it says %.200s", fmt.Sprint(long))
	}
}

// TestArgumentsOfAPool: the more specific wins, and nothing is nothing: a class that says {} would be written again and
// again.
func TestArgumentsOfAPool(t *testing.T) {
	config := ReadKubeletConfig(nodesWith(t, "{maxPods: 200, cpuManagerPolicy: static}"))
	for name, tc := range map[string]struct {
		reason    string
		config    KubeletConfig
		own, want v1alpha1.KubeletArgs
	}{
		"Neither": {"no arguments", KubeletConfig{}, nil, nil},
		"Config":  {"for all pools", config, nil, v1alpha1.KubeletArgs{"max-pods": "200", "cpu-manager-policy": "static"}},
		"Own":     {"of one pool", KubeletConfig{}, v1alpha1.KubeletArgs{"v": "4"}, v1alpha1.KubeletArgs{"v": "4"}},
		"Both": {"the pool is more specific", config, v1alpha1.KubeletArgs{"max-pods": "50"},
			v1alpha1.KubeletArgs{"max-pods": "50", "cpu-manager-policy": "static"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.config.With(tc.own)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// kubeletFlag is a flag that sets a field of the kubelet's configuration, in cmd/kubelet/app/options/options.go.
var kubeletFlag = regexp.MustCompile(`fs\.\w+\((?:\(\*string\)\()?(?:cliflag\.\w+\(|&utilflag\.\w+\{\w+: )?` +
	`&[cf]\.([A-Za-z.0-9]+)[)}]*, "([a-z0-9-]+)"`)

// TestArgumentsOfKubelets: kubelets of each version that is tested have the arguments, and an argument sets the field
// that it is for.
func TestArgumentsOfKubelets(t *testing.T) {
	modules, err := filepath.Glob("../../../tools/versions/*")
	if err != nil {
		t.Fatal(err)
	}
	// These flags are of packages of their own, and of no single field.
	others := map[string]string{"logging-format": "logging.format", "v": "logging.verbosity", "resolv-conf": "resolvConf"}
	compared := 0
	for _, module := range append(modules, "../../../tools/cluster") {
		list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
		list.Dir = module
		output, err := list.Output()
		source := strings.TrimSpace(string(output))
		if err != nil || source == "" {
			continue // this version is not built here
		}
		compared++
		text, err := os.ReadFile(filepath.Join(source, "cmd", "kubelet", "app", "options", "options.go"))
		if err != nil {
			t.Fatal(err)
		}
		fields := maps.Clone(others)
		for _, match := range kubeletFlag.FindAllStringSubmatch(string(text), -1) {
			if _, known := fields[match[2]]; !known {
				fields[match[2]] = strings.TrimSuffix(match[1], ".Duration")
			}
		}
		for name, argument := range kubeletArguments {
			if field, found := fields[argument.name]; !found || !strings.EqualFold(field, name) {
				t.Errorf("%s: --%s, for %s, sets %q", module, argument.name, name, field)
			}
		}
	}
	if compared == 0 {
		t.Skip("the sources of Kubernetes are not there: run 'make tools'")
	}
}

// TestKubeletConfigurationPage: docs/migration.md lists the fields for which there are arguments.
func TestKubeletConfigurationPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "\nThe kubelet has arguments for:\n\n")
	list, _, _ = strings.Cut(list, "\n\n")
	between := func(r rune) bool { return strings.ContainsRune("`, \n", r) }
	listed := strings.FieldsFunc(strings.TrimSuffix(list, "."), between)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(kubeletArguments)), listed); diff != "" {
		t.Errorf("docs/migration.md lists (-want +got):\n%s", diff)
	}
}
