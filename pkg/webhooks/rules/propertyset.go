// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"net/url"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// properties validates the properties of one object: keys, values, whole documents, and references.
func (r *Result) properties(cluster Cluster, path *field.Path, layer properties.Layer) {
	r.values(path, layer)
	r.references(cluster, path, properties.Merge(layer))
}

// propertiesOfTenant validates properties that a tenant writes. It does not look up names that the tenant may not use:
// the result would tell whether they exist. Without its TenantCluster, a tenant may name nothing.
func (r *Result) propertiesOfTenant(cluster Cluster, path *field.Path, layer properties.Layer, tenant *v1alpha1.TenantCluster) {
	r.values(path, layer)
	if tenant == nil {
		return
	}
	faults := properties.CheckTenant(layer, tenant, cluster.NodeTypes(), cluster.NodeProviders())
	for _, err := range faults {
		r.wrongProperty(path, err)
	}
	if len(faults) == 0 {
		r.references(cluster, path, properties.Merge(layer))
	}
}

// values validates keys, values and whole documents.
func (r *Result) values(path *field.Path, layer properties.Layer) {
	set := properties.Merge(layer)
	for _, err := range slices.Concat(layer.Conflicts(), set.Validate(), set.ValidateLabels()) {
		r.wrongProperty(path, err)
	}
	r.documents(path, set)
	r.unknownProperties(path, layer)
	if r.Allowed() && set.Get(v1alpha1.PropertyDNSServers) != "" && set.Get(v1alpha1.PropertyNetworkCIDR) == "" {
		r.warn(RuleProperties, key(path, v1alpha1.PropertyDNSServers), "has an effect only on servers with %s, and that is not set here: where "+
			"another DHCP server gives the addresses, set the name servers there", v1alpha1.PropertyNetworkCIDR)
	}
	if r.Allowed() && set.Get(v1alpha1.PropertyNetworkIPRange) != "" && set.Get(v1alpha1.PropertyNetworkCIDR) == "" {
		r.warn(RuleProperties, key(path, v1alpha1.PropertyNetworkIPRange), "needs the prefix length and the gateway of %s, and that is not set "+
			"here: Machines get no server unless a more general object sets it", v1alpha1.PropertyNetworkCIDR)
	}
}

// wrongProperty denies a fault that pkg/fleet/properties has found.
func (r *Result) wrongProperty(path *field.Path, err error) {
	var wrong *properties.Error
	if !errors.As(err, &wrong) {
		r.deny(RuleProperties, field.Invalid(path, "", err.Error()))
		return
	}
	rule := RuleProperties
	if wrong.Property == v1alpha1.PropertyServerName {
		rule = RulePinning
	}
	r.deny(rule, field.Invalid(key(path, wrong.Property), wrong.Value, wrong.Problem+": "+wrong.Remedy))
}

// documents validates whole documents. Errors do not repeat their content, which may hold secrets.
func (r *Result) documents(path *field.Path, set properties.Set) {
	if document := set.Get(v1alpha1.PropertyUserData); document != "" {
		if err := bootstrap.CheckUserData([]byte(document)); err != nil {
			r.deny(RuleProperties, field.Invalid(key(path, v1alpha1.PropertyUserData), bytesOf(document), err.Error()))
		}
	}
	if document := set.Get(v1alpha1.PropertyNetworkData); document != "" {
		warnings, err := bootstrap.CheckNetworkData([]byte(document))
		if err != nil {
			r.deny(RuleProperties, field.Invalid(key(path, v1alpha1.PropertyNetworkData), bytesOf(document), err.Error()))
		}
		for _, difference := range warnings {
			r.warn(RuleProperties, key(path, v1alpha1.PropertyNetworkData), "%s", difference)
		}
	}
}

// references warns of objects that do not exist. They may be created later: no order of writes is required.
func (r *Result) references(cluster Cluster, path *field.Path, set properties.Set) {
	for _, named := range set.References() {
		if !named.Overridden && !cluster.Exists(Kind(named.Kind), named.Name) {
			r.warn(RuleReferences, key(path, named.Property), "there is no %s %q yet: Machines get no server before there is",
				named.Kind, named.Name)
		}
	}
}

// OSImage validates an OSImage that is created, or updated from before.
func OSImage(cluster Cluster, before, after *v1alpha1.OSImage) Result {
	r := &Result{}
	path := field.NewPath("spec", "properties")
	layer := properties.Layer{Source: string(KindOSImage) + " " + after.Name, Values: after.Spec.Properties}
	r.properties(cluster, path, layer)
	set := properties.Merge(layer)
	var wrong *properties.Error
	if _, err := set.Image(); r.Allowed() && errors.As(err, &wrong) {
		// Machines may add what the image lacks, so this is not a fault of the image yet.
		if wrong.Property == v1alpha1.PropertyImageURL {
			wrong.Problem, wrong.Remedy = "is not set, and nothing is installed with an image without one", "set it to the URL of a disk image"
		}
		r.warn(RuleProperties, key(path, wrong.Property), "%s: %s", wrong.Problem, wrong.Remedy)
	}
	if before != nil && r.Allowed() {
		old := properties.Merge(properties.Layer{Values: before.Spec.Properties})
		if set.Get(v1alpha1.PropertyImageURL) != old.Get(v1alpha1.PropertyImageURL) ||
			set.Get(v1alpha1.PropertyImageChecksum) != old.Get(v1alpha1.PropertyImageChecksum) {
			r.warn(RuleImmutable, path, "machines that are running keep the image that they have: to roll them over, make a new OSImage and name "+
				"it in the NodeType")
		}
	}
	return r.done()
}

// SSHKey validates an SSHKey.
func SSHKey(_ Cluster, _, key *v1alpha1.SSHKey) Result {
	r := &Result{}
	if _, err := plan.AuthorizedKey(key.Spec.PublicKey); err != nil {
		r.deny(RuleSSHKey, field.Invalid(field.NewPath("spec", "publicKey"), bytesOf(key.Spec.PublicKey), err.Error()))
	}
	return r.done()
}

// MachineConfigTemplate validates a MachineConfigTemplate.
func MachineConfigTemplate(_ Cluster, _, template *v1alpha1.MachineConfigTemplate) Result {
	r := &Result{}
	for _, template := range []struct{ field, text string }{
		{"cloudInitTemplate", template.Spec.CloudInitTemplate},
		{"networkDataTemplate", template.Spec.NetworkDataTemplate},
	} {
		if template.text == "" {
			continue
		}
		if err := bootstrap.CheckSyntax(bootstrap.Template{Name: "it", Text: template.text}); err != nil {
			r.deny(RuleTemplate, field.Invalid(field.NewPath("spec", template.field), bytesOf(template.text), problemOf(err)))
		}
	}
	return r.done()
}

func problemOf(err error) string {
	var wrong *bootstrap.TemplateError
	if errors.As(err, &wrong) {
		named := *wrong
		named.Template = "is not a template"
		return named.Error()
	}
	return err.Error()
}

// precedence warns of a template that replaces a document of the NodeProvider: in the reference, the document wins.
func (r *Result) precedence(path *field.Path, layer properties.Layer, provider *v1alpha1.NodeProvider) {
	general, values := properties.Merge(properties.OfProvider(provider)), layer.Values
	for _, pair := range []struct{ template, document string }{
		{v1alpha1.PropertyNetworkDataTemplate, v1alpha1.PropertyNetworkData},
		{v1alpha1.PropertyUserDataTemplate, v1alpha1.PropertyUserData},
	} {
		_, own := values[pair.document]
		if values[pair.template] != "" && !own && general.Get(pair.document) != "" {
			r.warn(RuleProperties, key(path, pair.template), "takes the place of %s of %s, which is less specific; in the reference "+
				"the document wins: leave the template out to have it", pair.document, general.Source(pair.document))
		}
	}
}

// secretWords match typical user data with a secret. Other secrets go unnoticed.
var secretWords = regexp.MustCompile(`(?i)passw|secret|token|private key|api[-_]?key|chpasswd`)

// readByAll warns of secrets in properties of a NodeProvider or NodeType, which the providers of all tenants read.
func (r *Result) readByAll(path *field.Path, layer properties.Layer) {
	values := layer.Values
	for _, name := range []string{v1alpha1.PropertyImageURL, v1alpha1.PropertyImageChecksum} {
		if parsed, err := url.Parse(values[name]); err == nil && (parsed.User != nil || parsed.RawQuery != "") {
			r.warn(RuleProperties, key(path, name), "has credentials or a query, which the providers of all tenants read here: put it "+
				"into an OSImage, which they do not read")
		}
	}
	for _, name := range []string{v1alpha1.PropertyUserData, v1alpha1.PropertyNetworkData} {
		if secretWords.MatchString(values[name]) {
			r.warn(RuleProperties, key(path, name), "seems to have a secret, which the providers of all tenants read here: put it into a "+
				"MachineConfigTemplate, which they do not read")
		}
	}
}
