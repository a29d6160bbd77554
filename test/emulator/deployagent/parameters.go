// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package deployagent

import "regexp"

// Parameters are those that the ramdisk was booted with.
type Parameters struct {
	// IronicURL is where Ironic's API is, such as http://127.0.0.1:6385; empty means that the agent sends its inventory only.
	IronicURL string
	// Token is the agent token on the medium; empty means that the agent requests one from Ironic.
	Token string
	// InspectionURL is where the inventory is sent to, before anything else; empty means nowhere.
	InspectionURL string
	// Insecure is whether any certificate of Ironic is accepted.
	Insecure bool
}

// Parameters of the kernel command line, or of parameters.txt on a removable medium. File systems keep such small files in
// one piece, so that they can be found without knowing which file system it is.
var (
	apiURL        = regexp.MustCompile(`\bipa-api-url=([^\s"'\x00]+)`)
	agentToken    = regexp.MustCompile(`\bipa-agent-token=([A-Za-z0-9_-]+)`)
	inspectionURL = regexp.MustCompile(`\bipa-inspection-callback-url=(http[^\s"'\x00]+)`)
	insecure      = regexp.MustCompile(`\bipa-insecure=1\b`)
)

// Read takes the parameters that are in a text. Those that are not stay as they are.
func (p *Parameters) Read(text []byte) {
	if found := apiURL.FindSubmatch(text); found != nil {
		p.IronicURL = string(found[1])
	}
	if found := agentToken.FindSubmatch(text); found != nil {
		p.Token = string(found[1])
	}
	if found := inspectionURL.FindSubmatch(text); found != nil {
		p.InspectionURL = string(found[1])
	}
	p.Insecure = p.Insecure || insecure.Match(text)
}
