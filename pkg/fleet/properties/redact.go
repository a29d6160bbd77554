// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"regexp"
	"strings"
)

// blanked stands for what is not shown.
const blanked = "xxxxx"

// secretNames are what passwords and the like are called, at the end of a name.
const secretNames = `(?:password|passwd|passphrase|token|api[-_]?key|client[-_]?secret|private[-_]?key|authorization)`

var (
	// urls ends at blanks and quotes, unless they are escaped.
	urls = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://(?:\\.|[^\s"<>\\])+`)
	// named is a password with its name before it: password=x, "token": "x", Authorization: Bearer x.
	named = regexp.MustCompile(`(?i)(` + secretNames + `\\?["']?\s*[:=]\s*(?:(?:bearer|basic)\s+)?)` +
		`(?:\\"[^"\\]*\\"|"(?:\\.|[^"\\])*"|'[^']*'|[^\s"',;&{}\[\]\\]+)`)
	// unnamed are secrets that have a form of their own: tokens of bearers, of ServiceAccounts and of nodes that join, and keys.
	unnamed = regexp.MustCompile(`(?i:bearer)\s+[A-Za-z0-9._~+/=-]{8,}|\beyJ[\w-]+\.[\w-]+\.[\w-]+|\b[a-z0-9]{6}\.[a-z0-9]{16}\b|` +
		`(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----)`)
	secretName = regexp.MustCompile(`(?i)` + secretNames + `$`)
)

// Redact blanks in text of any kind, such as a log, what may be a secret: the credentials and queries of URLs, as PublicURL does, values
// that are called a password or the like, tokens and private keys.
func Redact(text string) string {
	text = urls.ReplaceAllStringFunc(text, PublicURL)
	text = named.ReplaceAllString(text, "${1}"+blanked)
	return unnamed.ReplaceAllString(text, blanked)
}

// RedactValue blanks in a value of JSON, which it may change, what may be a secret: all strings as Redact does, those whose key is called a
// password or the like, and annotations in which kubectl keeps a copy of the object.
func RedactValue(value any) any {
	switch value := value.(type) {
	case string:
		return Redact(value)
	case []any:
		for i := range value {
			value[i] = RedactValue(value[i])
		}
	case map[string]any:
		for key, item := range value {
			if text, isText := item.(string); isText && text != "" && secretName.MatchString(key) {
				value[key] = blanked
			} else if strings.HasSuffix(key, lastApplied) {
				delete(value, key)
			} else {
				value[key] = RedactValue(item)
			}
		}
	}
	return value
}

// lastApplied ends the annotations of kubectl and other tools that have a copy of the object.
const lastApplied = "/last-applied-configuration"
