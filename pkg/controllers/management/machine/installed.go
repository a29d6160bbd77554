// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	// installedVersion is the version of this list of fields. Records of another version are not compared: a manager with
	// one field more than the one before would have all Machines replaced.
	installedVersion = "v1-"
	// digestLength in hexadecimal digits. A collision only hides a change, so the digest is short.
	digestLength = 16

	// Fields that are no properties.
	kubeReservedField    = "spec.overhead.kubeReserved"
	userTemplateField    = "spec.cloudInitTemplate"
	networkTemplateField = "spec.networkDataTemplate"
	sshKeysField         = "spec.publicKey"
)

// textOf names the property that refers to the objects whose text a field is.
var textOf = map[string]string{
	userTemplateField:    v1alpha1.PropertyUserDataTemplate,
	networkTemplateField: v1alpha1.PropertyNetworkDataTemplate,
	sshKeysField:         v1alpha1.PropertySSHKeys,
}

// reasonOf the change of a field. The other properties do not shape what is installed, unless a template reads them.
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
	v1alpha1.PropertyNetworkData:         v1alpha1.ReasonNetworkChanged,
	v1alpha1.PropertyNetworkDataTemplate: v1alpha1.ReasonNetworkChanged,
}

// installed returns the fields that the plan installs, sorted. Values from an OSImage are left out: editing one in place does
// not replace any Machine.
func (p *plan) installed() []v1alpha1.InstalledField {
	fields := []v1alpha1.InstalledField{}
	add := func(field, value, shown string) {
		fields = append(fields, v1alpha1.InstalledField{Field: field, Value: shown, Digest: digest(value)})
	}
	for key, value := range p.set.Map() {
		if p.shapes(key) && !p.set.FromOSImage(key) {
			add(key, value, p.set.Shown(key))
		}
	}
	if p.kubeReserved != "" {
		add(kubeReservedField, p.kubeReserved, p.kubeReserved)
	}
	for field, text := range p.texts() {
		if text != "" && !p.set.FromOSImage(textOf[field]) {
			add(field, text, "")
		}
	}
	slices.SortFunc(fields, func(a, b v1alpha1.InstalledField) int { return strings.Compare(a.Field, b.Field) })
	return fields
}

// texts are what the properties refer to and what is written into the documents, by field.
func (p *plan) texts() map[string]string {
	texts := map[string]string{sshKeysField: strings.Join(p.sshKeys, "\n")}
	if p.userTemplate != nil {
		texts[userTemplateField] = p.userTemplate.Text
	}
	if p.networkTemplate != nil {
		texts[networkTemplateField] = p.networkTemplate.Text
	}
	return texts
}

// shapes returns whether a property changes what is installed. Of a document and a template for the same purpose only one does,
// and of properties of users' own only those that a template names.
func (p *plan) shapes(key string) bool {
	switch key {
	case v1alpha1.PropertyOSImage:
		for filled := range p.set.Map() {
			if p.set.FromOSImage(filled) && p.shapes(filled) {
				return true
			}
		}
		return false
	case v1alpha1.PropertyUserData:
		return p.userTemplate == nil && p.set.UserData() != ""
	case v1alpha1.PropertyUserDataTemplate:
		return p.userTemplate != nil
	case v1alpha1.PropertyNetworkData:
		return p.networkTemplate == nil && p.set.NetworkData() != ""
	case v1alpha1.PropertyNetworkDataTemplate:
		return p.networkTemplate != nil
	}
	if _, known := reasonOf[key]; known {
		return true
	}
	return p.userTemplate != nil && strings.Contains(p.userTemplate.Text, key) ||
		p.networkTemplate != nil && strings.Contains(p.networkTemplate.Text, key)
}

// hashOf is the hash of all fields.
func hashOf(fields []v1alpha1.InstalledField) string {
	text := strings.Builder{}
	for _, field := range fields {
		text.WriteString(field.Field + "\x00" + field.Digest + "\x00")
	}
	return installedVersion + digest(text.String())
}

func digest(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:])[:digestLength]
}
