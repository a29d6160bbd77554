// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// EnvPrefix starts the name of every environment variable that stands in for a flag.
const EnvPrefix = "KARPENTER_METAL3_"

// EnvName returns the environment variable that stands in for a flag.
func EnvName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(flag))
}

// FromEnvironment sets every flag that the command line did not set from its environment variable, if lookup finds
// one that is not empty. --help and --version are left alone. The error names every variable with a wrong value.
func FromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed || flag.Name == "help" || flag.Name == "version" {
			return
		}
		name := EnvName(flag.Name)
		value, found := lookup(name)
		if !found || value == "" {
			return
		}
		if err := flags.Set(flag.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s has the wrong value %q for --%s, %w", name, value, flag.Name, err))
		}
	})
	return errors.Join(errs...)
}
