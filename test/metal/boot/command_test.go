// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"io"
	"strings"
	"testing"
)

func TestServerFromEnvironment(t *testing.T) {
	for name, value := range map[string]string{"SERVER_NAME": "", "SERVER_UUID": "u1", "SERVER_MAC": "m", "SERVER_DIR": "/d",
		"SERVER_BRIDGE": "br0", "SERVER_IMAGE": "/i"} {
		t.Setenv(name, value)
	}
	s := Server{}
	flags := s.Flags("boot-it", "usage: boot-it\n")
	if proceed, err := Parse(flags, []string{"--image", "/other"}); err != nil || !proceed {
		t.Fatal(proceed, err)
	}
	if want := (Server{Name: "u1", UUID: "u1", MAC: "m", Dir: "/d", Image: "/other", Bridge: "br0"}); s != want {
		t.Errorf("it is %+v, want %+v", s, want)
	}
}

func TestFlags(t *testing.T) {
	cases := map[string]struct {
		reason  string
		args    []string
		proceed bool
		want    string
	}{
		"None":     {reason: "All settings can come from the environment.", proceed: true},
		"Help":     {reason: "Help is printed and nothing runs.", args: []string{"--help"}},
		"Argument": {reason: "A forgotten name of a flag.", args: []string{"server-1"}, want: `"server-1"`},
		"Unknown":  {reason: "A flag of another program.", args: []string{"--vm"}, want: "-vm"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			flags := (&Server{}).Flags("boot-it", "usage\n")
			flags.SetOutput(io.Discard)
			proceed, err := Parse(flags, tc.args)
			if proceed != tc.proceed || (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nproceed is %t, error is %v, want %t and %q", tc.reason, proceed, err, tc.proceed, tc.want)
			}
		})
	}
}
