// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommands(t *testing.T) {
	cases := map[string]struct {
		reason      string
		args        []string
		environment map[string]string
		output, err string
	}{
		"Help":        {reason: "without a subcommand, the help shows what there is", output: "Make the environment, and say how to look around"},
		"UnknownFlag": {reason: "a wrong flag is named", args: []string{"up", "--ipfamily", "dual"}, err: "--ipfamily"},
		"UnknownWord": {reason: "a wrong subcommand is named", args: []string{"start"}, err: `"start"`},
		"Argument":    {reason: "what has no meaning is not ignored", args: []string{"up", "ipv6"}, err: `"ipv6"`},
		"Environment": {reason: "a variable stands in for a flag", args: []string{"up"}, environment: map[string]string{"KIND_IP_FAMILY": "ipv5"},
			err: `the IP family is "ipv5"`},
		"FlagWins": {reason: "a flag is more than a variable", args: []string{"up", "--ip-family=ipv7"},
			environment: map[string]string{"KIND_IP_FAMILY": "ipv5"}, err: `the IP family is "ipv7"`},
		"BadVariable": {reason: "the variable is named, not the flag", args: []string{"test"}, environment: map[string]string{"KEEP": "maybe"},
			err: `KEEP is "maybe"`},
		"DownNothing": {reason: "where no environment is, there is nothing to do", args: []string{"down"}, output: "there is no environment"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, variable := range variables {
				t.Setenv(variable, tc.environment[variable])
			}
			command := newCommand()
			var output bytes.Buffer
			command.SetOut(&output)
			command.SetErr(&output)
			command.SilenceErrors = true
			command.SetArgs(append(tc.args, "--dir", filepath.Join(t.TempDir(), "environment")))
			err := command.ExecuteContext(t.Context())
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("%s\nthe error is %v, want one with %q", tc.reason, err, tc.err)
			}
			if !strings.Contains(output.String(), tc.output) {
				t.Errorf("%s\nthe output does not have %q:\n%s", tc.reason, tc.output, &output)
			}
		})
	}
}
