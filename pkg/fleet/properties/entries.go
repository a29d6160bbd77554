// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// maxShown is the length, in bytes, from which on a value is cut when it is shown.
const maxShown = 256

// Entry is one effective property, fit to be shown.
type Entry struct {
	// Key of the property.
	Key string
	// Value as it can be shown: whole documents, which may hold secrets, and the credentials in URLs are left out, and
	// long values are cut.
	Value string
	// Source is the object that the value is written in.
	Source string
}

// Entries returns the effective properties in the order of their keys. Properties with an empty value are not among
// them.
func (s Set) Entries() []Entry {
	entries := make([]Entry, 0, len(s.properties))
	for _, key := range slices.Sorted(maps.Keys(s.properties)) {
		if value := s.Get(key); value != "" {
			entries = append(entries, Entry{Key: key, Value: shown(key, value), Source: s.Source(key)})
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
			return "xxxxx"
		}
		return text
	}
	if parsed.User == nil && parsed.RawQuery == "" {
		return text
	}
	if parsed.RawQuery != "" {
		parsed.RawQuery = "xxxxx"
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
