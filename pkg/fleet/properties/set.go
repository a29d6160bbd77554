// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package properties merges the properties of machines, reads the value of each key, and validates it. Controllers and
// admission both use it, so that they have the same messages. Everything in it is a function of values.
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

// Layer is a set of properties and the object that they are written in.
type Layer struct {
	// Source is the object, for people to find: "NodeType h100-8x".
	Source string
	Values map[string]string
}

// Kinds of the objects that hold properties, or that properties name.
const (
	kindProvider = "NodeProvider"
	kindType     = "NodeType"
	KindOSImage  = "OSImage"

	KindSSHKey                = "SSHKey"
	KindMachineConfigTemplate = "MachineConfigTemplate"
)

// OfProvider is the layer of a NodeProvider, the least specific.
func OfProvider(provider *v1alpha1.NodeProvider) Layer {
	return Layer{Source: kindProvider + " " + provider.Name, Values: provider.Spec.Properties}
}

// OfType is the layer of a NodeType.
func OfType(nodeType *v1alpha1.NodeType) Layer {
	return Layer{Source: kindType + " " + nodeType.Name, Values: nodeType.Spec.Properties}
}

// OfClass is the layer of a MetalNodeClass.
func OfClass(class *v1alpha1.MetalNodeClass) Layer {
	return Layer{Source: "MetalNodeClass " + class.Name, Values: class.Spec.Properties}
}

// OfMachine is the layer of a Machine, the most specific.
func OfMachine(machine *v1alpha1.Machine) Layer {
	return Layer{Source: "Machine " + machine.Namespace + "/" + machine.Name, Values: machine.Spec.Properties}
}

// Set is a merged set of properties that knows where each value came from. The zero value is empty. It never changes.
type Set struct {
	properties map[string]property
}

type property struct {
	value, source string
	// rank of the layer; a higher one is more specific.
	rank int
}

// Merge merges layers; a later one wins over an earlier one, key by key, so the most specific comes last: NodeProvider,
// NodeType, MetalNodeClass, Machine. An empty value is a value: it removes that of an earlier layer. The keys of the set are ours,
// whichever of two keys (v1alpha1.Aliases) a layer has.
func Merge(layers ...Layer) Set {
	merged := Set{properties: map[string]property{}}
	for i, layer := range layers {
		for key, value := range v1alpha1.ByCanonicalKey(layer.Values) {
			merged.properties[key] = property{value: value, source: layer.Source, rank: i + 1}
		}
	}
	return merged
}

// Conflicts returns an *Error for each property that a layer has under both of its keys with different values, in the order of the keys.
// Merge takes the value of our key then.
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

// imageKeys belong together: the checksum of one image is of no use with another.
var imageKeys = []string{v1alpha1.PropertyImageURL, v1alpha1.PropertyImageChecksum, v1alpha1.PropertyImageChecksumType}

// WithOSImage returns the set with what it lacks filled in from the OSImage that it refers to. A set that has an image
// URL of its own gets no checksum from the OSImage: that would be the checksum of another image. An image of a layer that is
// less specific than the reference is replaced: the more specific wins.
func (s Set) WithOSImage(image *v1alpha1.OSImage) Set {
	ofImage := v1alpha1.ByCanonicalKey(image.Spec.Properties)
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

// Source returns the object that the value of a property was written in, empty if the property is not set.
func (s Set) Source(key string) string { return s.properties[key].source }

// Map returns the merged properties. The caller owns the map. Properties with an empty value are not in it.
func (s Set) Map() map[string]string {
	values := make(map[string]string, len(s.properties))
	for key, property := range s.properties {
		if property.value != "" {
			values[key] = property.value
		}
	}
	return values
}

// FromOSImage returns whether the value of a property was filled in from an OSImage.
func (s Set) FromOSImage(key string) bool {
	return strings.HasPrefix(s.Source(key), KindOSImage+" ")
}

// Error is what is wrong with a property, in one sentence for its author.
type Error struct {
	// Property is the key.
	Property string
	// Value that is wrong, fit to be shown; empty if the property is missing.
	Value string
	// Source is the object that the value is written in, empty if unknown or if the property is missing.
	Source string
	// Problem completes "property KEY of SOURCE": "is not an http, https or oci URL".
	Problem string
	// Remedy is what to do, as an imperative without a full stop.
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

// maxShown is the length, in bytes, from which on a value is cut when it is shown.
const maxShown = 256

// Entries returns the effective properties in the order of their keys, without those that have an empty value. A value
// is as it can be shown: whole documents, which may hold secrets, and the credentials in URLs are left out, and long
// values are cut.
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

// shown returns a value as it can stand in a status, an event or a log.
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

// PublicURL blanks the password and the query of a URL, for messages: the query of a signed URL is as good as a password.
// Text that is not a URL and holds neither is returned as it is.
func PublicURL(text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		// Whatever it is, it may have a password in front of an @ or something behind a ?.
		if strings.ContainsAny(text, "@?") {
			return Blanked
		}
		return text
	}
	// A / or # in a password ends the host: digits before it are a port, and the @ is behind it. So is the @ of an image's digest.
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

// Shown returns the value of a property as it can stand in a status, an event or a log; empty for whole documents.
func (s Set) Shown(key string) string {
	if key == v1alpha1.PropertyUserData || key == v1alpha1.PropertyNetworkData {
		return ""
	}
	return shown(key, s.Get(key))
}

// Validate returns everything that is wrong with the values of the set, each fault as an *Error, in the order of the
// keys; nil if nothing is. It looks at what is there: that something is missing, for example an image, may be because
// a more general object has it, so only Image says so. Whether what the values name exists is not looked at, nor are
// whole documents.
func (s Set) Validate() []error {
	checks := []func() error{
		func() error { _, err := s.OSImage(); return err },
		func() error { _, err := s.ServerName(); return err },
		s.pinned,
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

// pinned finds a pin in an object for many Machines, which would all need the same server.
func (s Set) pinned() error {
	for _, kind := range []string{kindProvider, kindType, KindOSImage} {
		if s.Get(v1alpha1.PropertyServerName) != "" && strings.HasPrefix(s.Source(v1alpha1.PropertyServerName), kind+" ") {
			return s.wrong(v1alpha1.PropertyServerName, "pins every Machine of the "+kind+" to one server",
				"set it on the one Machine that shall have the server")
		}
	}
	return nil
}

// network checks the network. Ranges alone are no fault: a more general object may have the network that they are in.
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

// without returns the set without a property.
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

// freeText are the properties whose values have a form of their own, which Validate knows, or none. They are labels, and
// can be selected by, only if the whole value happens to be one of a label.
var freeText = []string{
	v1alpha1.PropertyOSImage, v1alpha1.PropertyServerName, v1alpha1.PropertySSHKeys,
	v1alpha1.PropertyImageURL, v1alpha1.PropertyImageChecksum, v1alpha1.PropertyImageChecksumType,
	v1alpha1.PropertyUserData, v1alpha1.PropertyUserDataTemplate,
	v1alpha1.PropertyNetworkData, v1alpha1.PropertyNetworkDataTemplate,
	v1alpha1.PropertyNetworkCIDR, v1alpha1.PropertyNetworkIPRange, v1alpha1.PropertyDNSServers,
	v1alpha1.PropertyNTPServers,
}

// builtInDomains are those of keys that have a meaning, or that are labels of every node.
var builtInDomains = []string{v1alpha1.ReferenceDomain, "metal3.io", "karpenter.sh", "kubernetes.io", "k8s.io"}

// Custom returns whether a property has no meaning but what its author gives it.
func Custom(key string) bool {
	return !v1alpha1.InDomain(key, builtInDomains...)
}

// known are the properties with a meaning that are not free text.
var known = append(v1alpha1.InstanceLabelKeys(), v1alpha1.NodeTypeLabelKey)

// Unknown returns whether a property is in our domain or the reference's and has no meaning. At most it is a label of nodes.
func Unknown(key string) bool {
	return v1alpha1.InDomain(key, v1alpha1.Group, v1alpha1.ReferenceDomain) && !isFreeText(key) &&
		!slices.Contains(known, v1alpha1.CanonicalKey(key))
}

// isFreeText returns whether a property, by either of its keys, is free text.
func isFreeText(key string) bool { return slices.Contains(freeText, v1alpha1.CanonicalKey(key)) }

// LabelValues returns the values that a property has as a label of nodes: one, or several separated by commas. any is true
// for "*", which stands for every value. Both are zero if the property cannot be a label. A property with a form of its own
// has at most one.
func LabelValues(key, value string) (values []string, any bool) {
	if value == "" || len(validation.IsQualifiedName(key)) > 0 || v1alpha1.CanonicalKey(key) == v1alpha1.PropertyServerName {
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

// ValidateLabels returns what of the set cannot be a label, each fault as an *Error, in the order of the keys; nil if
// nothing is wrong. Keys must be those of labels. Values too, or several of them separated by commas, or "*", unless
// the property has a form of its own or is Unknown. Machines do not fail for it; such a property could not be selected by.
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

// Because joins what apimachinery reports of a value, without the regular expressions.
func Because(problems []string) string {
	short := make([]string, len(problems))
	for i := range problems {
		short[i], _, _ = strings.Cut(problems[i], " (e.g. ")
	}
	return strings.Join(short, ", ")
}
