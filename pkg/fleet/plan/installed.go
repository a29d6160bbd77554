// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	// installedVersion is the version of this list of fields. Records of another version are not compared. Otherwise a
	// manager that knows one field more would have all Machines replaced.
	installedVersion = "v1-"
	// digestLength is in hexadecimal digits. A collision only hides a change, so a short digest is enough.
	digestLength = 16

	// Fields that are not properties.
	kubeReservedField    = "spec.overhead.kubeReserved"
	userTemplateField    = "spec.cloudInitTemplate"
	networkTemplateField = "spec.networkDataTemplate"
	sshKeysField         = "spec.publicKey"
)

// textOf maps a field with a text to the property that refers to the objects with this text.
var textOf = map[string]string{
	userTemplateField:    v1alpha1.PropertyUserDataTemplate,
	networkTemplateField: v1alpha1.PropertyNetworkDataTemplate,
	sshKeysField:         v1alpha1.PropertySSHKeys,
}

// reasonOf maps a field to the reason of its change. Other properties change nothing unless a template reads them.
var reasonOf = map[string]string{
	kubeReservedField:                    v1alpha1.ReasonNodeTypeChanged,
	userTemplateField:                    v1alpha1.ReasonUserDataChanged,
	sshKeysField:                         v1alpha1.ReasonUserDataChanged,
	networkTemplateField:                 v1alpha1.ReasonNetworkChanged,
	v1alpha1.PropertyOSImage:             v1alpha1.ReasonOSImageChanged,
	v1alpha1.PropertyImageURL:            v1alpha1.ReasonOSImageChanged,
	v1alpha1.PropertyImageChecksum:       v1alpha1.ReasonOSImageChanged,
	v1alpha1.PropertyImageChecksumType:   v1alpha1.ReasonOSImageChanged,
	v1alpha1.PropertyUserData:            v1alpha1.ReasonUserDataChanged,
	v1alpha1.PropertyUserDataTemplate:    v1alpha1.ReasonUserDataChanged,
	v1alpha1.PropertySSHKeys:             v1alpha1.ReasonUserDataChanged,
	v1alpha1.PropertyNetworkCIDR:         v1alpha1.ReasonNetworkChanged,
	v1alpha1.PropertyNetworkIPRange:      v1alpha1.ReasonNetworkChanged,
	v1alpha1.PropertyDNSServers:          v1alpha1.ReasonNetworkChanged,
	v1alpha1.PropertyNTPServers:          v1alpha1.ReasonNetworkChanged,
	v1alpha1.PropertyNetworkData:         v1alpha1.ReasonNetworkChanged,
	v1alpha1.PropertyNetworkDataTemplate: v1alpha1.ReasonNetworkChanged,
}

// Installed returns the fields that the plan installs, sorted. It omits values from an OSImage: editing an OSImage in
// place replaces no Machine.
func (p *Plan) Installed() []v1alpha1.InstalledField {
	fields := []v1alpha1.InstalledField{}
	add := func(field, value, shown string) {
		fields = append(fields, v1alpha1.InstalledField{Field: field, Value: shown, Digest: digest(value)})
	}
	for key, value := range p.Set.Map() {
		if p.shapes(key) && !p.Set.FromOSImage(key) {
			if isURL(key) {
				value = withoutUser(value)
			}
			add(key, value, p.Set.Shown(key))
		}
	}
	if p.KubeReserved != "" {
		add(kubeReservedField, p.KubeReserved, p.KubeReserved)
	}
	for field, text := range p.texts() {
		if text != "" && !p.Set.FromOSImage(textOf[field]) {
			add(field, text, "")
		}
	}
	slices.SortFunc(fields, func(a, b v1alpha1.InstalledField) int { return strings.Compare(a.Field, b.Field) })
	return fields
}

// texts returns, by field, the text of the objects that the properties refer to and that goes into the documents.
func (p *Plan) texts() map[string]string {
	texts := map[string]string{sshKeysField: strings.Join(p.SSHKeys, "\n")}
	if p.UserTemplate != nil {
		texts[userTemplateField] = p.UserTemplate.Text
	}
	if p.NetworkTemplate != nil {
		texts[networkTemplateField] = p.NetworkTemplate.Text
	}
	return texts
}

// shapes reports whether a property affects the installation. Of a document and a template for the same purpose only
// one does. A custom property does only if a template names it.
func (p *Plan) shapes(key string) bool {
	switch key {
	case v1alpha1.PropertyOSImage:
		for filled := range p.Set.Map() {
			if p.Set.FromOSImage(filled) && p.shapes(filled) {
				return true
			}
		}
		return false
	case v1alpha1.PropertyUserData:
		return p.UserTemplate == nil && p.Set.UserData() != ""
	case v1alpha1.PropertyUserDataTemplate:
		return p.UserTemplate != nil
	case v1alpha1.PropertyNetworkData:
		return p.NetworkTemplate == nil && p.Set.NetworkData() != ""
	case v1alpha1.PropertyNetworkDataTemplate:
		return p.NetworkTemplate != nil
	}
	if _, known := reasonOf[key]; known {
		return true
	}
	return slices.ContainsFunc(v1alpha1.Spellings(key), func(spelling string) bool {
		return p.UserTemplate != nil && strings.Contains(p.UserTemplate.Text, spelling) ||
			p.NetworkTemplate != nil && strings.Contains(p.NetworkTemplate.Text, spelling)
	})
}

// Hash returns the hash of all fields.
func Hash(fields []v1alpha1.InstalledField) string {
	text := strings.Builder{}
	for _, field := range fields {
		text.WriteString(field.Field + "\x00" + field.Digest + "\x00")
	}
	return installedVersion + digest(text.String())
}

// Comparable reports whether a hash was made by this version of the list of fields.
func Comparable(hash string) bool { return strings.HasPrefix(hash, installedVersion) }

// isURL reports whether the value of a field can be a URL with credentials.
func isURL(field string) bool {
	return field == v1alpha1.PropertyImageURL || field == v1alpha1.PropertyImageChecksum
}

// withoutUser removes the user and the password from a URL. With them in the digest, a reader of the status could guess
// passwords until the digest matches. Besides, other credentials fetch the same image.
func withoutUser(value string) string {
	parsed, err := url.Parse(value)
	if err != nil || parsed.User == nil {
		return value
	}
	parsed.User = nil
	return parsed.String()
}

func digest(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:])[:digestLength]
}
