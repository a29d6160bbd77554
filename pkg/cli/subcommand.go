// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
)

// Subcommand describes something that a binary does instead of running: it writes something out and ends.
type Subcommand struct {
	// Name as it is typed, for example scheduler-config.
	Name string
	// Short says in one line what it does.
	Short string
	// Long says what is written and what it is for.
	Long string
	// Flags adds the flags, grouped into named sections. May be nil.
	Flags func(*cliflag.NamedFlagSets)
	// Run writes to out. Its error ends the process like that of Command.Run.
	Run func(cmd *cobra.Command, out io.Writer) error
}

// NewSubcommand returns the cobra command, to be added to one of NewCommand, from which it has the environment variables.
func NewSubcommand(s Subcommand) *cobra.Command {
	cmd := &cobra.Command{
		Use:   s.Name,
		Short: s.Short,
		Long:  s.Long,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return s.Run(cmd, cmd.OutOrStdout()) },
	}
	var sections cliflag.NamedFlagSets
	if s.Flags != nil {
		s.Flags(&sections)
	}
	for _, name := range sections.Order {
		cmd.Flags().AddFlagSet(sections.FlagSets[name])
	}
	// Without its own it would show the flags of the binary.
	cliflag.SetUsageAndHelpFunc(cmd, sections, unwrapped)
	return cmd
}
