// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	certutil "k8s.io/client-go/util/cert"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// Join has everything that one server must know to become one Node of one cluster.
type Join struct {
	// NodeName is the name of the Node and the hostname of the server: a DNS-1123 subdomain of at most 63 characters.
	NodeName string
	// ProviderID is the future spec.providerID of the Node: metal3://<host namespace>/<host>/<machine>.
	ProviderID string
	// APIServerEndpoint is host:port of the tenant's API server, as the server reaches it.
	APIServerEndpoint string
	// CACertHashes pin the tenant's CA, in the form of CACertHashes. At least one; any of them may match.
	CACertHashes []string
	Token        Token
	// Labels that the Node shall have. User data leaves out the labels that a kubelet may not give itself
	// (NodeRestriction): Karpenter itself sets the labels of its NodeClaim on the Node.
	Labels map[string]string
	// Taints that the Node registers with, among them Karpenter's own for unregistered nodes.
	Taints []corev1.Taint
	// KubeletArgs are extra arguments of the kubelet, by name without leading dashes.
	KubeletArgs map[string]string
	// KubernetesVersion is the minor version, such as v1.35, of the kubelet and the kubeadm to install if the image has
	// none. Empty if nothing is to be installed: then the image must have them. Only for JoinKubeadm.
	KubernetesVersion string
	// Mode is JoinKubeadm, which is also the meaning of empty, or JoinVCluster.
	Mode v1alpha1.JoinMode
	// CACertificates are the tenant's CA certificates, in PEM. Only for JoinVCluster, which fetches its script with
	// them.
	CACertificates []byte
}

func (j Join) fetchesScript() bool { return j.Mode == v1alpha1.JoinVCluster }

var minorVersion = regexp.MustCompile(`^v1\.[0-9]{1,3}$`)

// ValidateNode returns every reason why no server could join, or nil. It checks what is known before the claim.
func (j Join) ValidateNode() error {
	var errs []error
	if problems := validation.IsDNS1123Subdomain(j.NodeName); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("node name %q is not valid: %s", j.NodeName, strings.Join(problems, "; ")))
	} else if len(j.NodeName) > validation.DNS1123LabelMaxLength {
		// The kernel takes no longer hostname.
		errs = append(errs, fmt.Errorf("node name %q is longer than the %d characters of a hostname",
			j.NodeName, validation.DNS1123LabelMaxLength))
	}
	if err := CheckEndpoint(j.APIServerEndpoint); err != nil {
		errs = append(errs, err)
	}
	for _, err := range slices.Concat(CheckLabels(field.NewPath("labels"), j.Labels), CheckTaints(field.NewPath("taints"), j.Taints)) {
		errs = append(errs, err)
	}
	return utilerrors.NewAggregate(append(errs, validateKubeletArgs(j.KubeletArgs)...))
}

// Validate returns every reason why a server could not join with these values, or nil.
func (j Join) Validate() error {
	var errs []error
	if err := j.ValidateNode(); err != nil {
		errs = append(errs, err)
	}
	if j.ProviderID == "" {
		errs = append(errs, errors.New("the provider ID is empty: claim a server first"))
	}
	if len(j.CACertHashes) == 0 {
		errs = append(errs, errors.New("there is no CA hash: without one the server could be made to join any cluster"))
	}
	for _, hash := range j.CACertHashes {
		digest, ok := strings.CutPrefix(hash, caHashPrefix)
		if raw, err := hex.DecodeString(digest); !ok || err != nil || len(raw) != 32 {
			errs = append(errs, fmt.Errorf("CA hash %q is not %q and 64 hexadecimal digits", hash, caHashPrefix))
		}
	}
	if j.Token.IsZero() {
		errs = append(errs, errors.New("the join token is empty"))
	}
	switch j.Mode {
	case "", v1alpha1.JoinKubeadm:
		if j.KubernetesVersion != "" && !minorVersion.MatchString(j.KubernetesVersion) {
			errs = append(errs, fmt.Errorf("version %q of Kubernetes is not a minor version, such as v1.35", j.KubernetesVersion))
		}
	case v1alpha1.JoinVCluster:
		// The script fetches with the certificates, and the join is pinned to the hashes.
		if hashes, err := CACertHashes(j.CACertificates); err != nil {
			errs = append(errs, err)
		} else if !slices.Equal(hashes, j.CACertHashes) {
			errs = append(errs, errors.New("the CA hashes are not those of the CA certificates"))
		}
	default:
		errs = append(errs, fmt.Errorf("join mode %q is none of %q", j.Mode, []v1alpha1.JoinMode{v1alpha1.JoinKubeadm, v1alpha1.JoinVCluster}))
	}
	return utilerrors.NewAggregate(errs)
}

// CheckEndpoint returns what is wrong with the endpoint of an API server.
func CheckEndpoint(endpoint string) error {
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil || host == "" {
		return fmt.Errorf("API server endpoint %q is not host:port, such as 10.0.0.1:6443 or [2001:db8::1]:6443", endpoint)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return fmt.Errorf("API server endpoint %q has no port between 1 and 65535", endpoint)
	}
	if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0 {
		return fmt.Errorf("API server endpoint %q names neither an IP address nor a DNS name", endpoint)
	}
	return nil
}

// CheckLabels returns what is wrong with labels that a node is to have.
func CheckLabels(path *field.Path, labels map[string]string) (wrong field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		keyPath := path.Key(strconv.Quote(key))
		wrong = append(wrong, check(keyPath, key, "cannot be the key of a label: ", validation.IsQualifiedName)...)
		wrong = append(wrong, check(keyPath, labels[key], "cannot be the value of a label: ", validation.IsValidLabelValue)...)
	}
	return wrong
}

var effects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

// CheckTaints returns what is wrong with taints that a node is to have.
func CheckTaints(path *field.Path, taints []corev1.Taint) (wrong field.ErrorList) {
	seen := map[string]bool{}
	for i, taint := range taints {
		taintPath := path.Index(i)
		wrong = append(wrong, check(taintPath.Child("key"), taint.Key, "cannot be the key of a taint: ", validation.IsQualifiedName)...)
		wrong = append(wrong, check(taintPath.Child("value"), taint.Value, "cannot be the value of a taint: ", validation.IsValidLabelValue)...)
		if !slices.Contains(effects, taint.Effect) {
			wrong = append(wrong, field.NotSupported(taintPath.Child("effect"), taint.Effect, effects))
		}
		name := taint.Key + ":" + string(taint.Effect)
		if seen[name] {
			wrong = append(wrong, field.Duplicate(taintPath, name))
		}
		seen[name] = true
	}
	return wrong
}

func check(path *field.Path, value, message string, validate func(string) []string) field.ErrorList {
	if problems := validate(value); len(problems) > 0 {
		return field.ErrorList{field.Invalid(path, value, message+properties.Because(problems))}
	}
	return nil
}

// caHashPrefix names the only kind of hash that kubeadm knows.
const caHashPrefix = "sha256:"

// CACertHashes returns the hash of each certificate in a PEM bundle, in the form that kubeadm pins: "sha256:" and the
// lower-case hexadecimal SHA-256 of the certificate's Subject Public Key Info. Text without a certificate is an error.
func CACertHashes(caPEM []byte) ([]string, error) {
	certs, err := certutil.ParseCertsPEM(caPEM)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's CA certificates, %w", err)
	}
	return lo.Uniq(lo.Map(certs, func(cert *x509.Certificate, _ int) string { return CACertHash(cert) })), nil
}

// CACertHash returns the hash of one certificate in the form of CACertHashes.
func CACertHash(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return caHashPrefix + hex.EncodeToString(sum[:])
}

// Arguments of the kubelet that other fields of a Join decide.
const (
	argProviderID = "provider-id"
	argNodeLabels = "node-labels"
)

// ArgKubeReserved is the argument of the kubelet for what a NodeType sets aside.
const ArgKubeReserved = "kube-reserved"

// reservedArgs says for each kubelet argument that a Join sets itself, or must not have, what to do instead.
var reservedArgs = map[string]string{
	argProviderID:          "it is set from the provider ID",
	argNodeLabels:          "use the labels",
	argRegisterTaints:      "use the taints",
	"hostname-override":    "it is set from the node name",
	"node-ip":              "the kubelet finds the address that the server has; choose that one by the properties of its network",
	"register-node":        "a server that does not register never joins",
	"bootstrap-kubeconfig": "kubeadm sets it",
	"kubeconfig":           "kubeadm sets it",
	"config":               "kubeadm sets it",
}

// kubeletArgBreakers are the characters that systemd, which starts the kubelet, changes or splits in an argument.
const kubeletArgBreakers = " \t\r\n'\"\\$"

// CheckKubeletArgs returns everything that is wrong with a user's arguments, or nil. The API server has the same rules
// for Machines; this check is for Machines that are older than the rules.
func CheckKubeletArgs(args map[string]string) error {
	errs := validateKubeletArgs(args)
	if _, found := args[ArgKubeReserved]; found {
		errs = append(errs, fmt.Errorf("kubelet argument %q cannot be given: set the overhead of the NodeType, which Karpenter reckons with",
			ArgKubeReserved))
	}
	if _, err := capacity.ParseKubelet(args); err != nil {
		errs = append(errs, err)
	}
	return utilerrors.NewAggregate(errs)
}

func validateKubeletArgs(args map[string]string) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if instead, reserved := reservedArgs[name]; reserved {
			errs = append(errs, fmt.Errorf("kubelet argument %q cannot be given: %s", name, instead))
			continue
		}
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("kubelet argument %q is not a flag name; write it without leading dashes, the value apart", name))
		}
		if strings.ContainsAny(args[name], kubeletArgBreakers) {
			errs = append(errs, fmt.Errorf("the value of kubelet argument %q holds a blank, a quote, a backslash or a dollar sign, "+
				"which systemd would split or change: write it without, or put it into a file of the image", name))
		}
	}
	return errs
}

// kubeletLabels are the keys in Kubernetes' own namespaces that NodeRestriction lets a kubelet set on its Node.
var kubeletLabels = []string{
	corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable,
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceTypeStable,
	corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType,
	"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

// SelfSettableLabels returns the labels that a kubelet may set on its own Node. A kubelet refuses to start with other
// labels in Kubernetes' namespaces, so they must not reach its command line.
func SelfSettableLabels(labels map[string]string) map[string]string {
	return lo.PickBy(labels, func(key, _ string) bool { return selfSettable(key) })
}

func selfSettable(key string) bool {
	return !v1alpha1.InDomain(key, "kubernetes.io", "k8s.io") || slices.Contains(kubeletLabels, key) ||
		v1alpha1.InDomain(key, corev1.LabelNamespaceSuffixKubelet, corev1.LabelNamespaceSuffixNode)
}

// nodeLabelsArg writes labels as the kubelet's --node-labels takes them, in a stable order: user data that differs only
// in its order would look like drift.
func nodeLabelsArg(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ",")
}
