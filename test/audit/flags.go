// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package audit configures the audit logs of API servers and reads them, so that tests find the rights that our programs do
// not use. No logs are written unless AUDIT_LOG_DIR is set.
package audit

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
)

// DirectoryVariable is the environment variable with the directory for the audit logs of tests' API servers.
const DirectoryVariable = "AUDIT_LOG_DIR"

// policy logs one line for each request, with user, verb, object and response code, and no content of objects. Requests of
// the clusters' own components are left out. Impersonating users are kept, since the impersonated user may be ours.
//
//go:embed policy.yaml
var policy []byte

// Flags make an API server write an audit log to a file in the directory, whose name begins with that of the cluster.
// Without a directory there are no flags.
func Flags(directory, cluster string) ([]string, error) {
	if directory == "" {
		return nil, nil
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of the audit logs, %w", err)
	}
	file, err := os.CreateTemp(directory, cluster+"-*.log")
	if err != nil {
		return nil, fmt.Errorf("making an audit log, %w", err)
	}
	if err := file.Close(); err != nil {
		return nil, fmt.Errorf("making an audit log, %w", err)
	}
	// One for each API server, so that none reads a policy that is being written.
	policyFile := file.Name() + ".policy.yaml"
	if err := os.WriteFile(policyFile, policy, 0o644); err != nil {
		return nil, fmt.Errorf("writing the audit policy, %w", err)
	}
	log, err := filepath.Abs(file.Name())
	if err != nil {
		return nil, fmt.Errorf("finding the audit log, %w", err)
	}
	return []string{"--audit-policy-file=" + log + ".policy.yaml", "--audit-log-path=" + log}, nil
}
