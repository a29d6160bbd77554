// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package properties merges the properties of machines, reads the value of each key, and validates it. Controllers and
// admission both use it, so their messages agree. All its functions are pure.
package properties

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Layer is a set of properties with the object that sets them.
type Layer struct {
	// Source names the object for people: "NodeType h100-8x".
	Source string
	Values v1alpha1.Properties
}

// Kinds of objects that hold properties, or that properties name.
const (
	kindProvider = "NodeProvider"
	kindType     = "NodeType"
	KindOSImage  = "OSImage"

	KindSSHKey                = "SSHKey"
	KindMachineConfigTemplate = "MachineConfigTemplate"
)

// OfProvider returns the layer of a NodeProvider, the least specific.
func OfProvider(provider *v1alpha1.NodeProvider) Layer {
	return Layer{Source: kindProvider + " " + provider.Name, Values: provider.Spec.Properties}
}

// OfType returns the layer of a NodeType.
func OfType(nodeType *v1alpha1.NodeType) Layer {
	return Layer{Source: kindType + " " + nodeType.Name, Values: nodeType.Spec.Properties}
}

// OfClass returns the layer of a MetalNodeClass.
func OfClass(class *v1alpha1.MetalNodeClass) Layer {
	return Layer{Source: "MetalNodeClass " + class.Name, Values: class.Spec.Properties}
}

// OfMachine returns the layer of a Machine, the most specific.
func OfMachine(machine *v1alpha1.Machine) Layer {
	return Layer{Source: "Machine " + machine.Namespace + "/" + machine.Name, Values: machine.Spec.Properties}
}

// Set is a merged set of properties with the source of each value. The zero value is empty. A Set is immutable.
type Set struct {
	properties map[string]property
}

type property struct {
	value, source string
	// rank of the layer; a higher rank is more specific.
	rank int
}

// Merge merges layers key by key. A later layer wins, so the most specific comes last: NodeProvider, NodeType,
// MetalNodeClass, Machine. An empty value counts: it removes the value of an earlier layer. The set has no key of the
// reference beside ours.
func Merge(layers ...Layer) Set {
	merged := Set{properties: map[string]property{}}
	for i, layer := range layers {
		for key, value := range layer.Values {
			if v1alpha1.CanonicalKey(key) == key {
				merged.properties[key] = property{value: value, source: layer.Source, rank: i + 1}
			}
		}
	}
	return merged
}

// Conflicts returns an *Error for each property that a layer has under both of its keys with different values, sorted
// by key. Merge then takes the value of our key.
func (l Layer) Conflicts() []error {
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(l.Values)) {
		alias := v1alpha1.ReferenceKey(key)
		if other, both := l.Values[alias]; both && other != l.Values[key] {
			faults = append(faults, &Error{Property: key, Value: shown(key, l.Values[key]), Source: l.Source,
				Problem: fmt.Sprintf("has another value under its alias %s (%q)", alias, shown(key, other)), Remedy: "write one of the two"})
		}
	}
	return faults
}

// imageKeys belong together: the checksum of one image is useless for another.
var imageKeys = []string{v1alpha1.PropertyImageURL, v1alpha1.PropertyImageChecksum, v1alpha1.PropertyImageChecksumType}

// WithOSImage fills in missing properties from the OSImage that the set refers to. A set with its own image URL gets no
// checksum from the OSImage, because that would be the checksum of another image. An image from a less specific layer
// than the reference is replaced: the more specific layer wins.
func (s Set) WithOSImage(image *v1alpha1.OSImage) Set {
	ofImage := image.Spec.Properties
	if ofImage[v1alpha1.PropertyImageURL] != "" {
		named := s.properties[v1alpha1.PropertyOSImage].rank
		for _, key := range imageKeys {
			if s.properties[key].rank < named {
				s = s.without(key)
			}
		}
	}
	filled := Set{properties: make(map[string]property, len(s.properties)+len(ofImage))}
	for key, value := range ofImage {
		filled.properties[key] = property{value: value, source: KindOSImage + " " + image.Name}
	}
	switch {
	case s.Get(v1alpha1.PropertyImageURL) != "":
		for _, key := range imageKeys {
			delete(filled.properties, key)
		}
	case s.Get(v1alpha1.PropertyImageChecksum) != "":
		delete(filled.properties, v1alpha1.PropertyImageChecksumType)
	}
	for key, value := range s.properties {
		if _, found := filled.properties[key]; !found || value.value != "" {
			filled.properties[key] = value
		}
	}
	return filled
}

// Get returns the value of a property, empty if it is not set.
func (s Set) Get(key string) string { return s.properties[key].value }

// Source returns the object that sets the property, "" if the property is not set.
func (s Set) Source(key string) string { return s.properties[key].source }

// Map returns the merged properties without empty values. The caller owns the map.
func (s Set) Map() map[string]string {
	values := make(map[string]string, len(s.properties))
	for key, property := range s.properties {
		if property.value != "" {
			values[key] = property.value
		}
	}
	return values
}

// FromOSImage reports whether the value of a property comes from an OSImage.
func (s Set) FromOSImage(key string) bool {
	return strings.HasPrefix(s.Source(key), KindOSImage+" ")
}

// Error is a fault in a property, as one sentence for its author.
type Error struct {
	// Property is the key of the property.
	Property string
	// Value is the wrong value, safe to show; empty if the property is missing.
	Value string
	// Source is the object that sets the value, empty if unknown or if the property is missing.
	Source string
	// Problem completes "property KEY of SOURCE": "is not an http, https or oci URL".
	Problem string
	// Remedy is what to do, in the imperative and without a full stop.
	Remedy string
}

// Error implements error.
func (e *Error) Error() string {
	text := "property " + e.Property
	if e.Source != "" {
		text += " of " + e.Source
	}
	if e.Value != "" {
		text += fmt.Sprintf(" (%q)", e.Value)
	}
	return text + " " + e.Problem + ": " + e.Remedy
}

func (s Set) wrong(key, problem, remedy string) *Error {
	return &Error{Property: key, Value: shown(key, s.Get(key)), Source: s.Source(key), Problem: problem, Remedy: remedy}
}

// maxShown is the length in bytes above which a shown value is cut.
const maxShown = 256

// Entries returns the effective properties sorted by key, without empty values. The values are safe to show: they omit
// whole documents, which may hold secrets, and the credentials in URLs, and long values are cut.
func (s Set) Entries() []v1alpha1.MachineProperty {
	entries := make([]v1alpha1.MachineProperty, 0, len(s.properties))
	for _, key := range slices.Sorted(maps.Keys(s.properties)) {
		if value := s.Get(key); value != "" {
			entries = append(entries,
				v1alpha1.MachineProperty{Key: key, Value: shown(key, value), Source: s.Source(key)})
		}
	}
	return entries
}

// shown returns a value in a form for a status, an event or a log.
func shown(key, value string) string {
	switch key {
	case v1alpha1.PropertyUserData, v1alpha1.PropertyNetworkData:
		if value == "" {
			return ""
		}
		return fmt.Sprintf("(%d bytes)", len(value))
	case v1alpha1.PropertyImageURL, v1alpha1.PropertyImageChecksum:
		value = PublicURL(value)
	}
	if len(value) > maxShown {
		return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(value[:maxShown], ""), len(value))
	}
	return value
}

// PublicURL blanks the password and the query of a URL for messages: the query of a signed URL is as good as a
// password. Text that is not a URL and has neither is returned unchanged.
func PublicURL(text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		// The text may still have a password before an @, or a secret after a ?.
		if strings.ContainsAny(text, "@?") {
			return Blanked
		}
		return text
	}
	// A / or # in a password ends the host: then the digits before it look like a port, and the @ follows. So does the
	// @ of an image's digest.
	hasPort := parsed.Port() != "" || strings.HasSuffix(parsed.Host, ":")
	if behind := strings.ReplaceAll(parsed.Path+parsed.Fragment, "@sha256:", ""); hasPort && strings.Contains(behind, "@") {
		return Blanked
	}
	if parsed.User == nil && parsed.RawQuery == "" {
		return text
	}
	if parsed.RawQuery != "" {
		parsed.RawQuery = Blanked
	}
	return parsed.Redacted()
}

// Shown returns the value of a property in a form for a status, an event or a log; "" for whole documents.
func (s Set) Shown(key string) string {
	if key == v1alpha1.PropertyUserData || key == v1alpha1.PropertyNetworkData {
		return ""
	}
	return shown(key, s.Get(key))
}

// Validate returns all faults in the values of the set, each as an *Error, sorted by key; nil if there are none. It
// reports only faults in existing values. A missing property, for example the image, may be set by a more general
// object, so only Image reports it. Validate checks neither whole documents nor whether the named objects exist.
func (s Set) Validate() []error {
	checks := []func() error{
		func() error { _, err := s.OSImage(); return err },
		func() error { _, err := s.ServerName(); return err },
		func() error { _, err := s.SSHKeys(); return err },
		func() error {
			_, err := s.objectName(v1alpha1.PropertyUserDataTemplate, "a MachineConfigTemplate")
			return err
		},
		func() error {
			_, err := s.objectName(v1alpha1.PropertyNetworkDataTemplate, "a MachineConfigTemplate")
			return err
		},
		s.imageURL,
		func() error { _, _, err := s.checksum(); return err },
		func() error { _, err := s.nameServers(); return err },
		func() error { _, err := s.NTPServers(); return err },
		s.without(v1alpha1.PropertyDNSServers).network,
	}
	var faults []error
	for _, check := range checks {
		if err := check(); err != nil {
			faults = append(faults, err)
		}
	}
	slices.SortStableFunc(faults, func(a, b error) int { return strings.Compare(keyOf(a), keyOf(b)) })
	return faults
}

// network checks the network. Ranges without a network are no fault: a more general object may have the network.
func (s Set) network() error {
	if s.Get(v1alpha1.PropertyNetworkCIDR) == "" {
		_, err := s.ranges(Network{})
		return err
	}
	_, _, err := s.Network()
	return err
}

func (s Set) imageURL() error {
	if s.Get(v1alpha1.PropertyImageURL) == "" {
		return nil
	}
	_, err := s.parsedImageURL()
	return err
}

func (s Set) without(key string) Set {
	rest := Set{properties: make(map[string]property, len(s.properties))}
	for other, value := range s.properties {
		if other != key {
			rest.properties[other] = value
		}
	}
	return rest
}

func keyOf(err error) string {
	if wrong, ok := err.(*Error); ok {
		return wrong.Property
	}
	return ""
}

// anyValue stands for any value of a property.
const anyValue = "*"

// freeText are the properties whose values have their own form, which Validate knows, or none. They become labels, and
// can be selected by, only if the whole value happens to be a valid label value.
var freeText = []string{
	v1alpha1.PropertyOSImage, v1alpha1.PropertyServerName, v1alpha1.PropertySSHKeys,
	v1alpha1.PropertyImageURL, v1alpha1.PropertyImageChecksum, v1alpha1.PropertyImageChecksumType,
	v1alpha1.PropertyUserData, v1alpha1.PropertyUserDataTemplate,
	v1alpha1.PropertyNetworkData, v1alpha1.PropertyNetworkDataTemplate,
	v1alpha1.PropertyNetworkCIDR, v1alpha1.PropertyNetworkIPRange, v1alpha1.PropertyDNSServers,
	v1alpha1.PropertyNTPServers,
}

// builtInDomains are the domains of keys that have a meaning, or that are labels of every node.
var builtInDomains = []string{v1alpha1.ReferenceDomain, "metal3.io", "karpenter.sh", "kubernetes.io", "k8s.io"}

// Custom reports whether only the author gives the property a meaning.
func Custom(key string) bool {
	return !v1alpha1.InDomain(key, builtInDomains...)
}

// known are the properties that have a meaning and are not free text.
var known = append(v1alpha1.InstanceLabelKeys(), v1alpha1.NodeTypeLabelKey)

// Unknown reports whether a property is in our domain or the reference's, but has no meaning. At most it labels nodes.
func Unknown(key string) bool {
	return v1alpha1.InDomain(key, v1alpha1.Group, v1alpha1.ReferenceDomain) && !isFreeText(key) &&
		!slices.Contains(known, key)
}

func isFreeText(key string) bool { return slices.Contains(freeText, key) }

// LabelValues returns the values of a property as a label of nodes: one, or several separated by commas. any is true
// for "*", which stands for every value. Both are zero if the property cannot be a label. A free-text property has at
// most one value.
func LabelValues(key, value string) (values []string, any bool) {
	if value == "" || len(validation.IsQualifiedName(key)) > 0 || key == v1alpha1.PropertyServerName {
		return nil, false
	}
	if isFreeText(key) {
		values = []string{value}
	} else if values = splitList(value); slices.Contains(values, anyValue) {
		return nil, true
	}
	for _, single := range values {
		if len(validation.IsValidLabelValue(single)) > 0 {
			return nil, false
		}
	}
	return values, false
}

// ValidateLabels returns an *Error for each property that cannot be a label, sorted by key; nil if there are none. The
// key must be a valid label key. The value must be one or more label values separated by commas, or "*", unless the
// property is free text or Unknown. Machines work with such a property all the same, but nothing could select by it.
func (s Set) ValidateLabels() []error {
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(s.properties)) {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			faults = append(faults, s.wrong(key, "has a key that cannot be one of a label ("+Because(problems)+")",
				"write a name, or a domain, a slash and a name, for example example.com/team"))
			continue
		}
		if isFreeText(key) || Unknown(key) {
			continue
		}
		for _, value := range s.list(key) {
			if problems := validation.IsValidLabelValue(value); value != anyValue && len(problems) > 0 {
				faults = append(faults, s.wrong(key, "has a value that cannot be one of a label ("+Because(problems)+")",
					"write letters, digits, -, _ and . only, several values separated by commas, or * for any"))
				break
			}
		}
	}
	return faults
}

// Because joins the messages that apimachinery reports for a value, without the regular expressions.
func Because(problems []string) string {
	short := make([]string, len(problems))
	for i := range problems {
		short[i], _, _ = strings.Cut(problems[i], " (e.g. ")
	}
	return strings.Join(short, ", ")
}
