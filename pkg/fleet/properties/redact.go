// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"regexp"
	"strings"
)

// Blanked replaces secret text.
const Blanked = "xxxxx"

// secretNames matches the end of a name for passwords and the like.
const secretNames = `(?:password|passwd|passphrase|\bpass|[-_]pass|\bpwd|[-_]pwd|token|secret|secret[-_][\w-]*|authorization|\bcommunity|` +
	`(?:api|access|client|encryption|join|license|private|server|signing|tls)[-_.]?key(?:[-_]data)?)`

// behind matches the value after the name of a secret.
const behind = `(?:\\"[^"\\]*\\"|"(?:\\.|[^"\\])*"|'[^']*'|[^\s"',;&{}\[\]\\]+)`

var (
	// urls matches a URL up to a blank or a quote that is not escaped.
	urls = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://(?:\\.|[^\s"<>\\])+`)
	// named matches a secret after its name: password=x, "token": "x", Authorization: Bearer x, --password x,
	// "--token", "x". It also matches secrets after flags of one letter, and names whose values are secrets only in a
	// certain form.
	named = []*regexp.Regexp{
		regexp.MustCompile(`(?i)(` + secretNames + `\\?["']?\s*[:=]\s*(?:(?:bearer|basic)\s+)?)` + behind),
		regexp.MustCompile(`(?im)((?:^|[\s"'\[,])--?[\w.-]*` + secretNames + `(?:\\?["']\s*,)?\s+)` + behind),
		regexp.MustCompile(`(\bipmitool\b[^\n]*?\s-P\s*|\bsshpass\s+-p\s*|(?i:\bchap\s+secret)\s+)` + behind),
		regexp.MustCompile(`(?i)(kubeconfig\\?["']?\s*[:=]\s*\\?["']?)[a-z0-9+][a-z0-9+/=]{11,}`),
		regexp.MustCompile(`(?i)(credentials\\?["']?\s*[:=]\s*\\?["']?)[^\s"'/:]+:[^\s"']+`),
	}
	// lists matches user names with passwords for chpasswd, including more deeply indented lines below.
	lists = regexp.MustCompile(`(?:\S+\s*\|\s*)?\bchpasswd\b[^\n]*(?:\n[ \t]+[^\n]*)*`)
	// unnamed matches secrets by their own form: tokens of bearers, of ServiceAccounts, of nodes that join and of known
	// services, hashes of passwords, and keys, also in base64.
	unnamed = regexp.MustCompile(`(?i:bearer)\s+[A-Za-z0-9._~+/=-]{8,}|(?i:basic)\s+[A-Za-z0-9+/]{8,}=+|` +
		`\beyJ[\w-]+\.[\w-]+\.[\w-]+|\b[a-z0-9]{6}\.[a-z0-9]{16}\b|` +
		`\b(?:hf_|gh[opsur]_|github_pat_|glpat-|nvapi-|xox[a-z]-)[\w-]{10,}|\b(?:AKIA|ASIA)[0-9A-Z]{12,}|` +
		`\$(?:[1567y]|gy|2[abxy]?|argon2\w*)\$[^\s"',:]+|LS0tLS1CRUdJTi[\w+/=-]*|` +
		`(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----)`)
	secretName = regexp.MustCompile(`(?i)` + secretNames + `$`)
	secretFlag = regexp.MustCompile(`(?i)^--?[\w.-]*` + secretNames + `$`)
)

// Redact blanks secrets in any text, such as a log: the credentials and queries of URLs, as PublicURL does, values with
// the name of a password or the like, tokens, hashes of passwords and private keys. It is the last safety net: a secret
// with neither a typical name nor a typical form stays.
func Redact(text string) string {
	text = urls.ReplaceAllStringFunc(text, PublicURL)
	for _, form := range named {
		text = form.ReplaceAllString(text, "${1}"+Blanked)
	}
	text = lists.ReplaceAllString(text, "chpasswd "+Blanked)
	return unnamed.ReplaceAllString(text, Blanked)
}

// RedactValue blanks the same secrets in a JSON value, which it may modify: in all strings, in strings whose key, name
// or preceding flag names a password or the like, and in annotations in which kubectl keeps a copy of the object.
func RedactValue(value any) any {
	switch value := value.(type) {
	case string:
		return Redact(value)
	case []any:
		secret := false
		for i := range value {
			text, isText := value[i].(string)
			if isText && secret {
				value[i] = Blanked
			} else {
				value[i] = RedactValue(value[i])
			}
			secret = isText && secretFlag.MatchString(text)
		}
	case map[string]any:
		if name, isText := value["name"].(string); isText && secretName.MatchString(name) && value["value"] != nil {
			value["value"] = Blanked
		}
		for key, item := range value {
			if text, isText := item.(string); isText && text != "" && secretName.MatchString(key) {
				value[key] = Blanked
			} else if strings.HasSuffix(key, lastApplied) {
				delete(value, key)
			} else {
				value[key] = RedactValue(item)
			}
		}
	}
	return value
}

// lastApplied is the suffix of annotations in which kubectl and other tools keep a copy of the object.
const lastApplied = "/last-applied-configuration"
