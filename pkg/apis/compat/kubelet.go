// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// KubeletArg is an argument of the kubelet that stands for a field of a KubeletConfiguration.
type KubeletArg struct {
	Path        *field.Path
	Name, Value string
}

// KubeletConfig is the result of reading privateNodes.kubelet.config of a TenantCluster.
type KubeletConfig struct {
	// Args are the arguments that mean the same as fields.
	Args []KubeletArg
	// WithoutEffect lists the fields that no argument of the kubelet stands for.
	WithoutEffect []Field
	// Wrong lists the values that no KubeletConfiguration can have.
	Wrong field.ErrorList
}

// With returns the arguments of a pool: Args and the pool's own, which win.
func (c *KubeletConfig) With(own v1alpha1.KubeletArgs) v1alpha1.KubeletArgs {
	if len(c.Args)+len(own) == 0 {
		return nil
	}
	all := make(v1alpha1.KubeletArgs, len(c.Args)+len(own))
	for _, arg := range c.Args {
		all[arg.Name] = v1alpha1.KubeletArg(arg.Value)
	}
	maps.Copy(all, own)
	return all
}

// ReadKubeletConfig reads privateNodes.kubelet.config, which may be nil.
func ReadKubeletConfig(nodes *v1alpha1.PrivateNodes) KubeletConfig {
	result := KubeletConfig{}
	if nodes == nil || nodes.Kubelet.Config == nil {
		return result
	}
	raw, path := nodes.Kubelet.Config.Raw, field.NewPath("spec", "privateNodes", "kubelet", "config")
	if len(raw) > maxOpaque {
		result.WithoutEffect = []Field{{Path: path, Instead: ofKubeletConfigMap, Value: string(raw), TooLong: true}}
		return result
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // 0.1 and 1e3 stay as they were written
	config := map[string]any{}
	if err := decoder.Decode(&config); err != nil {
		result.Wrong = field.ErrorList{field.Invalid(path, string(raw), "is no object: "+err.Error())}
		return result
	}
	result.read(path, "", config)
	return result
}

// read reads the fields of an object. Their names in kubeletArguments begin with the prefix.
func (c *KubeletConfig) read(path *field.Path, prefix string, object map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		name, keyPath, value := prefix+key, path.Child(key), object[key]
		if value == nil || name == "apiVersion" || name == "kind" {
			continue
		}
		argument, found := kubeletArguments[name]
		instead, decided := insteadOfKubeletConfig[name]
		if nested, is := value.(map[string]any); is && !found && !decided {
			c.read(keyPath, name+".", nested)
			continue
		}
		text, err := "", errNoArgument
		if found {
			text, err = argument.write(value)
		}
		switch {
		case errors.Is(err, errNoArgument):
			c.WithoutEffect = append(c.WithoutEffect,
				Field{Path: keyPath, Instead: cmp.Or(instead, ofKubeletConfigMap), Value: inJSON(value)})
		case err != nil:
			c.Wrong = append(c.Wrong, field.Invalid(keyPath, inJSON(value), err.Error()))
		case len(text) > v1alpha1.MaxKubeletArgLength:
			c.Wrong = append(c.Wrong, field.TooLong(keyPath, text, v1alpha1.MaxKubeletArgLength))
		default:
			c.Args = append(c.Args, KubeletArg{Path: keyPath, Name: argument.name, Value: text})
		}
	}
}

// inJSON returns a value that was read from JSON as it was written.
func inJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// ofKubeletConfigMap is the advice for fields that no argument of the kubelet stands for.
const ofKubeletConfigMap = "the kubelet has no argument for it: write it into the ConfigMap kubelet-config of " +
	"kube-system in the tenant, which kubeadm join reads"

// insteadOfKubeletConfig is the advice for fields that the API itself covers.
var insteadOfKubeletConfig = map[string]string{
	"kubeReserved":       "set overhead.kubeReserved of the NodeType, which Karpenter reckons with",
	"registerWithTaints": "write it into the taints of the pools",
	"registerNode":       byTheJoin,
	"providerID":         byTheJoin,
}

const byTheJoin = "the join sets it: leave it out"

// errNoArgument: the kubelet's argument cannot express the value of the field.
var errNoArgument = errors.New("no argument says this")

// kubeletArgument is the name of an argument of the kubelet and the function that writes its value.
type kubeletArgument struct {
	name  string
	write func(value any) (string, error)
}

// kubeletArguments are the arguments that stand for fields of a KubeletConfiguration, by the names of the fields. The
// kubelets of all tested versions have them, and an argument wins over the configuration of the node. Arguments that
// the join sets are left out.
var kubeletArguments = func() map[string]kubeletArgument {
	arguments := map[string]kubeletArgument{}
	for _, form := range []struct {
		write func(value any) (string, error)
		// arguments are FIELD=ARGUMENT.
		arguments string
	}{
		{scalar, `
			address=address authentication.anonymous.enabled=anonymous-auth
			authentication.webhook.cacheTTL=authentication-token-webhook-cache-ttl
			authentication.webhook.enabled=authentication-token-webhook authentication.x509.clientCAFile=client-ca-file
			authorization.mode=authorization-mode
			authorization.webhook.cacheAuthorizedTTL=authorization-webhook-cache-authorized-ttl
			authorization.webhook.cacheUnauthorizedTTL=authorization-webhook-cache-unauthorized-ttl cgroupDriver=cgroup-driver
			cgroupRoot=cgroup-root cgroupsPerQOS=cgroups-per-qos clusterDomain=cluster-domain
			containerLogMaxFiles=container-log-max-files containerLogMaxSize=container-log-max-size
			containerRuntimeEndpoint=container-runtime-endpoint contentType=kube-api-content-type cpuCFSQuota=cpu-cfs-quota
			cpuCFSQuotaPeriod=cpu-cfs-quota-period cpuManagerPolicy=cpu-manager-policy
			cpuManagerReconcilePeriod=cpu-manager-reconcile-period enableContentionProfiling=contention-profiling
			enableControllerAttachDetach=enable-controller-attach-detach enableDebuggingHandlers=enable-debugging-handlers
			eventBurst=event-burst eventRecordQPS=event-qps evictionMaxPodGracePeriod=eviction-max-pod-grace-period
			evictionPressureTransitionPeriod=eviction-pressure-transition-period failCgroupV1=fail-cgroupv1
			failSwapOn=fail-swap-on fileCheckFrequency=file-check-frequency hairpinMode=hairpin-mode
			healthzBindAddress=healthz-bind-address healthzPort=healthz-port httpCheckFrequency=http-check-frequency
			imageGCHighThresholdPercent=image-gc-high-threshold imageGCLowThresholdPercent=image-gc-low-threshold
			imageMinimumGCAge=minimum-image-ttl-duration imageServiceEndpoint=image-service-endpoint
			kernelMemcgNotification=kernel-memcg-notification kubeAPIBurst=kube-api-burst kubeAPIQPS=kube-api-qps
			kubeReservedCgroup=kube-reserved-cgroup kubeletCgroups=kubelet-cgroups
			localStorageCapacityIsolation=local-storage-capacity-isolation logging.format=logging-format logging.verbosity=v
			makeIPTablesUtilChains=make-iptables-util-chains maxOpenFiles=max-open-files maxPods=max-pods
			memoryManagerPolicy=memory-manager-policy nodeStatusMaxImages=node-status-max-images
			nodeStatusUpdateFrequency=node-status-update-frequency oomScoreAdj=oom-score-adj podPidsLimit=pod-max-pids
			podsPerCore=pods-per-core port=port protectKernelDefaults=protect-kernel-defaults readOnlyPort=read-only-port
			registryBurst=registry-burst registryPullQPS=registry-qps reservedSystemCPUs=reserved-cpus resolvConf=resolv-conf
			rotateCertificates=rotate-certificates runtimeRequestTimeout=runtime-request-timeout
			seccompDefault=seccomp-default serializeImagePulls=serialize-image-pulls
			serverTLSBootstrap=rotate-server-certificates staticPodPath=pod-manifest-path staticPodURL=manifest-url
			streamingConnectionIdleTimeout=streaming-connection-idle-timeout syncFrequency=sync-frequency
			systemCgroups=system-cgroups systemReservedCgroup=system-reserved-cgroup tlsCertFile=tls-cert-file
			tlsMinVersion=tls-min-version tlsPrivateKeyFile=tls-private-key-file topologyManagerPolicy=topology-manager-policy
			topologyManagerScope=topology-manager-scope volumePluginDir=volume-plugin-dir
			volumeStatsAggPeriod=volume-stats-agg-period`},
		{list, `
			allowedUnsafeSysctls=allowed-unsafe-sysctls clusterDNS=cluster-dns enforceNodeAllocatable=enforce-node-allocatable
			tlsCipherSuites=tls-cipher-suites`},
		{pairs("="), `
			evictionMinimumReclaim=eviction-minimum-reclaim evictionSoftGracePeriod=eviction-soft-grace-period
			featureGates=feature-gates qosReserved=qos-reserved systemReserved=system-reserved
			topologyManagerPolicyOptions=topology-manager-policy-options`},
		{pairs("<"), "evictionHard=eviction-hard evictionSoft=eviction-soft"},
		{onePair, "cpuManagerPolicyOptions=cpu-manager-policy-options"},
		{reservedMemory, "reservedMemory=reserved-memory"},
	} {
		for _, pair := range strings.Fields(form.arguments) {
			name, argument, _ := strings.Cut(pair, "=")
			arguments[name] = kubeletArgument{argument, form.write}
		}
	}
	return arguments
}()

func scalar(value any) (string, error) {
	switch value := value.(type) {
	case string:
		return value, nil
	case bool:
		return strconv.FormatBool(value), nil
	case json.Number:
		return value.String(), nil
	}
	return "", errors.New("must be a text, a number or a boolean")
}

func list(value any) (string, error) {
	items, is := value.([]any)
	texts, err := make([]string, len(items)), error(nil)
	for i := range items {
		if texts[i], err = scalar(items[i]); err != nil {
			is = false
		}
	}
	if !is {
		return "", errors.New("must be a list of texts")
	}
	return strings.Join(texts, ","), nil
}

func pairs(separator string) func(value any) (string, error) {
	return func(value any) (string, error) {
		object, is := value.(map[string]any)
		texts := make([]string, 0, len(object))
		for _, key := range slices.Sorted(maps.Keys(object)) {
			text, err := scalar(object[key])
			is = is && err == nil
			texts = append(texts, key+separator+text)
		}
		if !is {
			return "", errors.New("must be an object whose values are texts, numbers or booleans")
		}
		return strings.Join(texts, ","), nil
	}
}

// onePair writes an object of one entry. The argument takes more entries only if it is repeated: errNoArgument.
func onePair(value any) (string, error) {
	text, err := pairs("=")(value)
	if object, is := value.(map[string]any); err == nil && is && len(object) > 1 {
		return "", errNoArgument
	}
	return text, err
}

// reservedMemory writes [{numaNode: 0, limits: {memory: 1Gi}}] as 0:memory=1Gi.
func reservedMemory(value any) (string, error) {
	nodes, is := value.([]any)
	texts := make([]string, len(nodes))
	for i := range nodes {
		node, _ := nodes[i].(map[string]any)
		number, wrongNumber := scalar(node["numaNode"])
		limits, wrongLimits := pairs("=")(node["limits"])
		is = is && wrongNumber == nil && wrongLimits == nil
		texts[i] = number + ":" + limits
	}
	if !is {
		return "", errors.New("must be a list of {numaNode: NUMBER, limits: {memory: QUANTITY}}")
	}
	return strings.Join(texts, ";"), nil
}
