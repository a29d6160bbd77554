// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// Flags returns the flags of a program that boots servers, with usage before their list. The environment identifies the
// server; a variable is the default of the flag that goes with it.
func (s *Server) Flags(program, usage string) *flag.FlagSet {
	s.Name, s.UUID = os.Getenv("SERVER_NAME"), os.Getenv("SERVER_UUID")
	s.MAC, s.Dir = os.Getenv("SERVER_MAC"), os.Getenv("SERVER_DIR")
	s.Name = cmp.Or(s.Name, s.UUID)
	flags := flag.NewFlagSet(program, flag.ContinueOnError)
	flags.Usage = func() {
		_, _ = io.WriteString(flags.Output(), usage) // the error output itself is closed
		flags.PrintDefaults()
	}
	flags.StringVar(&s.Image, "image", os.Getenv("SERVER_IMAGE"), "the `directory` that \"make server-image\" makes; SERVER_IMAGE by default")
	flags.StringVar(&s.Bridge, "bridge", os.Getenv("SERVER_BRIDGE"),
		"the `name` of the bridge that the server is plugged into; SERVER_BRIDGE by default")
	return flags
}

// Parse parses arguments that are flags only. It returns false if help was asked for, and given.
func Parse(flags *flag.FlagSet, args []string) (proceed bool, err error) {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return false, nil
		}
		return false, err
	}
	if flags.NArg() > 0 {
		return false, fmt.Errorf("unexpected argument %q: the program takes flags only", flags.Arg(0))
	}
	return true, nil
}
